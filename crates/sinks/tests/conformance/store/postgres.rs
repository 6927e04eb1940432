//! A PostgreSQL server, read by a superuser session.
//!
//! It runs with `synchronous_commit = off`, so a write that is confirmed and durable shows that the store switches it
//! on.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::Path;

use symphony_db::connect::Target;
use symphony_relay::store::{Store, Written};
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use symphony_testkit::wait::{self, DEFAULT_TIMEOUT};
use tokio_postgres::Client;

use super::fixture::{REFUSED_TYPE, StoreFixture, StoredRecord, customer, record, store_for, stored_record};
use crate::certificate_authority::CertificateAuthority;
use crate::fixture::{Files, PASSWORD};

const PAGE: &str = include_str!("../../../../../docs/sinks/metadata-postgres.md");

pub(crate) struct Postgres {
    cluster: Cluster,
    tls: bool,
    /// Holds a lock on the table during a pause.
    lock_holder: Option<Client>,
}

impl StoreFixture for Postgres {
    const ACCEPTS_DOT_IDS: bool = true;

    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self> {
        let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
        let fixture = Self { cluster, tls: tls.is_some(), lock_holder: None };
        let admin = fixture.admin().await;
        // The SQL of the page, word for word.
        let example = PAGE.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
        admin.batch_execute(&format!("create role symphony_copies login password '{PASSWORD}'")).await.unwrap();
        admin.batch_execute(example).await.unwrap();
        let check = format!("alter table copies.symphony_metadata add check (entity_type <> '{REFUSED_TYPE}')");
        admin.batch_execute(&check).await.unwrap();
        if tls.is_some() && admin.batch_execute("alter system set ssl = on").await.is_err() {
            return None;
        }
        let data = fixture.cluster.folder().join("data");
        if let Some(authority) = tls {
            let (certificate, key) = authority.issue("localhost");
            for (name, text) in [("server.crt", certificate), ("server.key", key)] {
                std::fs::write(data.join(name), text).unwrap();
                give_to_server_user(&data, name);
            }
        }
        let connection_type = if tls.is_some() { "hostssl" } else { "host" };
        let entries =
            format!("host all postgres all trust\n{connection_type} all symphony_copies all scram-sha-256\n");
        std::fs::write(data.join("pg_hba.conf"), entries).unwrap();
        admin.batch_execute("select pg_reload_conf()").await.unwrap();
        let url = fixture.url("unknown", "");
        let is_reloaded = async || {
            // The new pg_hba.conf has no entry for this user.
            let error = Target::parse(&url).unwrap().connect().await.unwrap_err();
            format!("{error:?}").contains("pg_hba.conf")
        };
        wait::until("the server has reloaded pg_hba.conf", DEFAULT_TIMEOUT, is_reloaded).await.unwrap();
        Some(fixture)
    }

    fn settings(&self, root: Option<&Path>) -> String {
        let trust = root.map(|root| format!("sslmode=verify-full&sslrootcert={}&", root.display()));
        format!("kind = 'postgres'\nurl = '{}'", self.url("symphony_copies", &trust.unwrap_or_default()))
    }

    async fn read(&self, entity_type: &str, entity_id: &str) -> Option<StoredRecord> {
        let sql = "select version, entry_id::text, metadata::text, updated_at <= clock_timestamp()
                   from copies.symphony_metadata where entity_type = $1 and entity_id = $2";
        let row = self.admin().await.query_opt(sql, &[&entity_type, &entity_id]).await.unwrap()?;
        assert!(row.get::<_, bool>(3));
        Some(StoredRecord { version: row.get(0), entry_id: row.get(1), metadata: row.get(2) })
    }

    async fn count(&self) -> usize {
        let sql = "select count(*) from copies.symphony_metadata";
        let rows: i64 = self.admin().await.query_one(sql, &[]).await.unwrap().get(0);
        usize::try_from(rows).unwrap()
    }

    async fn kill(&mut self) {
        self.cluster.kill9().await;
    }

    async fn restart(&mut self) {
        self.cluster.restart().await.unwrap();
    }

    async fn pause(&mut self) {
        let lock_holder = self.admin().await;
        lock_holder.batch_execute("begin; lock table copies.symphony_metadata").await.unwrap();
        self.lock_holder = Some(lock_holder);
    }

    async fn resume(&mut self) {
        // A session that died with the server holds no lock.
        if let Some(lock_holder) = self.lock_holder.take().filter(|session| !session.is_closed()) {
            lock_holder.batch_execute("rollback").await.unwrap();
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

/// The server accepts a key file only with mode 0600, and runs as the owner of its data folder.
fn give_to_server_user(data: &Path, name: &str) {
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
async fn a_wrong_table_is_named_and_the_record_stays_retryable() {
    let fixture = Postgres::start(None).await.unwrap();
    let store = store_for(&fixture, &Files::new(), "timeout = '60s'");
    let first = customer("1", 1);
    assert_eq!(store.write(&first).await, Written::Stored);
    for (change, repair, code) in [
        ("rename to elsewhere", "alter table copies.elsewhere rename to symphony_metadata", "42P01"),
        ("rename version to number", "alter table copies.symphony_metadata rename number to version", "42703"),
        (
            "drop constraint symphony_metadata_pkey",
            "alter table copies.symphony_metadata add primary key (entity_type, entity_id)",
            "42P10",
        ),
    ] {
        fixture.run(&format!("alter table copies.symphony_metadata {change}")).await;
        let why = failure(store.as_ref()).await;
        assert!(why.contains(code) && why.contains("docs/sinks/metadata-postgres.md"), "{why}");
        fixture.run(repair).await;
    }
    for right in ["select", "insert", "update"] {
        fixture.run(&format!("revoke {right} on copies.symphony_metadata from symphony_copies")).await;
        let why = failure(store.as_ref()).await;
        assert!(why.contains("grant select, insert and update"), "{why}");
        fixture.run(&format!("grant {right} on copies.symphony_metadata to symphony_copies")).await;
    }
    assert_eq!(fixture.read("customer", "1").await, stored_record(&first));
    assert_eq!(store.write(&customer("1", 2)).await, Written::Stored);
}

#[tokio::test]
async fn an_invalid_record_is_refused_without_being_quoted() {
    let fixture = Postgres::start(None).await.unwrap();
    let store = store_for(&fixture, &Files::new(), "timeout = '60s'");
    let mut no_json = customer("1", 1);
    no_json.metadata = "{secret".to_owned();
    let mut no_text = customer("1", 1);
    no_text.metadata = "{\"secret\": \"\\u0000\"}".to_owned();
    let mut no_id = customer("1", 1);
    no_id.entry_id = "secret".to_owned();
    // It does not compress, so it is too long for an index entry.
    let too_long: String = (0..1000_u32).map(|n| format!("{:08x}", n.wrapping_mul(2_654_435_761))).collect();
    for record in [no_json, no_text, no_id, customer("a\0secret", 1), customer(&too_long, 1)] {
        let written = store.write(&record).await;
        assert!(super::suite::is_refused(&written, ""), "{written:?}");
        assert!(!format!("{written:?}").contains("secret"), "{written:?}");
    }
    assert_eq!(fixture.count().await, 0);
    assert_eq!(store.write(&customer("1", 1)).await, Written::Stored);
}

#[tokio::test]
async fn a_locked_row_fails_in_time_and_blocks_no_other_entity() {
    let fixture = Postgres::start(None).await.unwrap();
    let store = store_for(&fixture, &Files::new(), "timeout = '2s'\nconnect_timeout = '1500ms'");
    super::suite::store_eventually(store.as_ref(), &customer("locked", 1)).await;
    let holder = fixture.admin().await;
    holder.batch_execute("begin; select from copies.symphony_metadata for update").await.unwrap();
    failure_of(store.as_ref(), "locked").await;
    // Another entity is stored while the row is locked.
    super::suite::store_eventually(store.as_ref(), &record("customer", "free", 1)).await;
    // No session waits for the lock: lock_timeout has ended the statement.
    let admin = fixture.admin().await;
    let sql =
        "select count(*) from pg_stat_activity where usename = 'symphony_copies' and wait_event_type = 'Lock'";
    let none = async || admin.query_one(sql, &[]).await.unwrap().get::<_, i64>(0) == 0;
    wait::until("no statement waits for the lock", DEFAULT_TIMEOUT, none).await.unwrap();
    holder.batch_execute("rollback").await.unwrap();
    super::suite::store_eventually(store.as_ref(), &customer("locked", 2)).await;
}

async fn failure_of(store: &dyn Store, entity_id: &str) {
    let written = store.write(&customer(entity_id, 2)).await;
    assert!(matches!(written, Written::Failed(_)), "{written:?}");
}

#[tokio::test]
async fn a_terminated_session_is_replaced() {
    let fixture = Postgres::start(None).await.unwrap();
    let store = store_for(&fixture, &Files::new(), "timeout = '60s'");
    assert_eq!(store.write(&customer("1", 1)).await, Written::Stored);
    assert!(fixture.cluster.terminate_sessions("postgres").await.unwrap() > 0);
    super::suite::store_eventually(store.as_ref(), &customer("1", 2)).await;
    assert_eq!(fixture.read("customer", "1").await.unwrap().version, 2);
}
