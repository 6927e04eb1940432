//! PostgreSQL, read by a session of its superuser. It answers before it has written, unless it is told otherwise: the store
//! must tell it.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use symphony_outbox::connect::Target;
use symphony_proof::kit::postgres::{Binaries, Cluster, Options};
use symphony_proof::kit::wait::{self, BOUND};
use symphony_relay::store::{Store, Written};
use tokio_postgres::Client;

use super::shelf::{Kept, Shelf, UNWELCOME, customer, kept, record, store_on};
use crate::authority::Authority;
use crate::place::{Files, PASSWORD};

const MANUAL: &str = include_str!("../../../../../docs/sinks/metadata-postgres.md");

pub(crate) struct Postgres {
    cluster: Cluster,
    tls: bool,
    /// Holds the table while the shelf is paused.
    holding: Option<Client>,
}

impl Shelf for Postgres {
    const KEEPS_DOTS: bool = true;

    async fn start(tls: Option<&Authority>) -> Option<Self> {
        let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
        let shelf = Self { cluster, tls: tls.is_some(), holding: None };
        let admin = shelf.admin().await;
        // As the manual says, word for word.
        let example = MANUAL.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
        admin.batch_execute(&format!("create role symphony_copies login password '{PASSWORD}'")).await.unwrap();
        admin.batch_execute(example).await.unwrap();
        let check = format!("alter table copies.symphony_metadata add check (entity_type <> '{UNWELCOME}')");
        admin.batch_execute(&check).await.unwrap();
        if tls.is_some() && admin.batch_execute("alter system set ssl = on").await.is_err() {
            return None;
        }
        let data = shelf.cluster.folder().join("data");
        if let Some(authority) = tls {
            let (certificate, key) = authority.server("localhost");
            for (name, text) in [("server.crt", certificate), ("server.key", key)] {
                std::fs::write(data.join(name), text).unwrap();
                hand_to_server(&data, name);
            }
        }
        let way = if tls.is_some() { "hostssl" } else { "host" };
        let entries = format!("host all postgres all trust\n{way} all symphony_copies all scram-sha-256\n");
        std::fs::write(data.join("pg_hba.conf"), entries).unwrap();
        admin.batch_execute("select pg_reload_conf()").await.unwrap();
        let url = shelf.url("nobody", "");
        let asks = async || {
            // Whoever is not in the new file is turned away by it.
            let error = Target::parse(&url).unwrap().connect().await.unwrap_err();
            format!("{error:?}").contains("pg_hba.conf")
        };
        wait::until("the server asks for passwords", BOUND, asks).await.unwrap();
        Some(shelf)
    }

    fn settings(&self, root: Option<&Path>) -> String {
        let trust = root.map(|root| format!("sslmode=verify-full&sslrootcert={}&", root.display()));
        format!("kind = 'postgres'\nurl = '{}'", self.url("symphony_copies", &trust.unwrap_or_default()))
    }

    async fn read(&self, entity_type: &str, entity_id: &str) -> Option<Kept> {
        let sql = "select version, entry_id::text, metadata::text, updated_at <= clock_timestamp()
                   from copies.symphony_metadata where entity_type = $1 and entity_id = $2";
        let row = self.admin().await.query_opt(sql, &[&entity_type, &entity_id]).await.unwrap()?;
        assert!(row.get::<_, bool>(3));
        Some(Kept { version: row.get(0), entry_id: row.get(1), metadata: row.get(2) })
    }

    async fn count(&self) -> usize {
        let sql = "select count(*) from copies.symphony_metadata";
        let rows: i64 = self.admin().await.query_one(sql, &[]).await.unwrap().get(0);
        usize::try_from(rows).unwrap()
    }

    async fn down(&mut self) {
        self.cluster.kill9().await;
    }

    async fn up(&mut self) {
        self.cluster.restart().await.unwrap();
    }

    async fn pause(&mut self) {
        let holding = self.admin().await;
        holding.batch_execute("begin; lock table copies.symphony_metadata").await.unwrap();
        self.holding = Some(holding);
    }

    async fn resume(&mut self) {
        // Dead with the server, it holds nothing.
        if let Some(holding) = self.holding.take().filter(|holding| !holding.is_closed()) {
            holding.batch_execute("rollback").await.unwrap();
        }
    }
}

impl Postgres {
    fn url(&self, user: &str, trust: &str) -> String {
        let (port, mode) = (self.cluster.port(), if self.tls { "" } else { "sslmode=disable&" });
        format!("postgres://{user}@localhost:{port}/postgres?{mode}{trust}options=-c%20search_path%3Dcopies")
    }

    async fn admin(&self) -> Client {
        Target::parse(&self.cluster.url("postgres")).unwrap().connect().await.unwrap()
    }

    async fn run(&self, sql: &str) {
        self.admin().await.batch_execute(sql).await.unwrap();
    }
}

/// The server takes a key only from a file that nobody else reads, and runs as the owner of its data.
fn hand_to_server(data: &Path, name: &str) {
    let owner = std::fs::metadata(data).unwrap();
    let path = data.join(name);
    chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
}

async fn failure(store: &dyn Store) -> String {
    match store.write(&customer("1", 2)).await {
        Written::Failed(why) => why,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_table_that_is_not_as_it_should_be_is_named_and_no_reason_to_give_up_records() {
    let shelf = Postgres::start(None).await.unwrap();
    let store = store_on(&shelf, &Files::new(), "timeout = '60s'");
    let first = customer("1", 1);
    assert_eq!(store.write(&first).await, Written::Stored);
    for (breaks, mends, says) in [
        ("rename to elsewhere", "alter table copies.elsewhere rename to symphony_metadata", "42P01"),
        ("rename version to number", "alter table copies.symphony_metadata rename number to version", "42703"),
        (
            "drop constraint symphony_metadata_pkey",
            "alter table copies.symphony_metadata add primary key (entity_type, entity_id)",
            "42P10",
        ),
    ] {
        shelf.run(&format!("alter table copies.symphony_metadata {breaks}")).await;
        let why = failure(store.as_ref()).await;
        assert!(why.contains(says) && why.contains("docs/sinks/metadata-postgres.md"), "{why}");
        shelf.run(mends).await;
    }
    for right in ["select", "insert", "update"] {
        shelf.run(&format!("revoke {right} on copies.symphony_metadata from symphony_copies")).await;
        let why = failure(store.as_ref()).await;
        assert!(why.contains("grant select, insert and update"), "{why}");
        shelf.run(&format!("grant {right} on copies.symphony_metadata to symphony_copies")).await;
    }
    assert_eq!(shelf.read("customer", "1").await, kept(&first));
    assert_eq!(store.write(&customer("1", 2)).await, Written::Stored);
}

#[tokio::test]
async fn what_the_database_cannot_keep_is_refused_without_being_quoted() {
    let shelf = Postgres::start(None).await.unwrap();
    let store = store_on(&shelf, &Files::new(), "timeout = '60s'");
    let mut no_json = customer("1", 1);
    no_json.metadata = "{secret".to_owned();
    let mut no_text = customer("1", 1);
    no_text.metadata = "{\"secret\": \"\\u0000\"}".to_owned();
    let mut no_id = customer("1", 1);
    no_id.entry_id = "secret".to_owned();
    // It does not compress, so that no index takes it.
    let endless: String = (0..1000_u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
    for record in [no_json, no_text, no_id, customer("a\0secret", 1), customer(&endless, 1)] {
        let written = store.write(&record).await;
        assert!(super::facts::is_refused(&written, ""), "{written:?}");
        assert!(!format!("{written:?}").contains("secret"), "{written:?}");
    }
    assert_eq!(shelf.count().await, 0);
    assert_eq!(store.write(&customer("1", 1)).await, Written::Stored);
}

#[tokio::test]
async fn a_row_that_somebody_holds_fails_in_time_and_holds_up_nothing_for_ever() {
    let shelf = Postgres::start(None).await.unwrap();
    let store = store_on(&shelf, &Files::new(), "timeout = '2s'\nconnect_timeout = '1500ms'");
    super::facts::store_at_last(store.as_ref(), &customer("held", 1)).await;
    let holder = shelf.admin().await;
    holder.batch_execute("begin; select from copies.symphony_metadata for update").await.unwrap();
    failure_of(store.as_ref(), "held").await;
    // Another entity is stored while the row is still held.
    super::facts::store_at_last(store.as_ref(), &record("customer", "free", 1)).await;
    // Nobody is left who waits for it: the server itself has given up.
    let admin = shelf.admin().await;
    let sql =
        "select count(*) from pg_stat_activity where usename = 'symphony_copies' and wait_event_type = 'Lock'";
    let none = async || admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0;
    wait::until("no statement of ours waits for the row", BOUND, none).await.unwrap();
    holder.batch_execute("rollback").await.unwrap();
    super::facts::store_at_last(store.as_ref(), &customer("held", 2)).await;
}

async fn failure_of(store: &dyn Store, entity_id: &str) {
    let written = store.write(&customer(entity_id, 2)).await;
    assert!(matches!(written, Written::Failed(_)), "{written:?}");
}

#[tokio::test]
async fn sessions_that_an_administrator_ends_are_made_again() {
    let shelf = Postgres::start(None).await.unwrap();
    let store = store_on(&shelf, &Files::new(), "timeout = '60s'");
    assert_eq!(store.write(&customer("1", 1)).await, Written::Stored);
    assert!(shelf.cluster.terminate_sessions("postgres").await.unwrap() > 0);
    super::facts::store_at_last(store.as_ref(), &customer("1", 2)).await;
    assert_eq!(shelf.read("customer", "1").await.unwrap().version, 2);
}
