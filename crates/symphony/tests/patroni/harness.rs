//! The harness: a cluster, a bank that remembers keys, one that forgets them, a broker, a second store, and two
//! relayers that serve all lanes. One finds the leader through HAProxy, the other through a URL with all nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;
use symphony_db::connect::Target;
use symphony_testkit::brokers::{Broker, BrokerAuth, Kind, USER};
use symphony_testkit::patroni::{HaCluster, Replication};
use symphony_testkit::postgres::Binaries;
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::until;
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::bank::Bank;
use crate::load::Load;
use crate::relayer::{Relayer, Settings};

/// A rail whose bank remembers keys.
pub(crate) const RAIL: &str = "sepa";
/// The same, in order.
pub(crate) const ORDERED: &str = "wire";
/// A rail whose bank forgets keys at once, and that says so.
pub(crate) const FORGETFUL: &str = "card";
const RAILS: [&str; 3] = [RAIL, ORDERED, FORGETFUL];
const PASSWORD: &str = "open-sesame-7";
pub(crate) const DESTINATION: &str = "orders";
/// How long the bank that forgets remembers a key.
const KEY_MEMORY_SECONDS: i32 = 1;
/// Longer than it takes to send what an outage has left, on a slow machine.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(300);

pub(crate) struct Harness {
    pub(crate) cluster: HaCluster,
    pub(crate) bank: Bank,
    pub(crate) forgetful_bank: Bank,
    pub(crate) broker: Broker,
    pub(crate) store: Broker,
    settings: [Settings; 2],
    relayers: Vec<Relayer>,
    producer_url: String,
    folder: TempDir,
    database: Database,
}

impl Harness {
    pub(crate) async fn start(replication: Replication) -> Self {
        let cluster = HaCluster::start(&binaries(), replication).await.unwrap();
        let database = Server::at(&cluster.url("postgres")).unwrap().database().await.unwrap();
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let producer_url = database.url_as_login(&["symphony_ingest"]).await.unwrap();
        let forget = format!("forget_after={KEY_MEMORY_SECONDS}s");
        let latency = ["--fault", "latency=20ms", "--fault", "jitter=60ms"];
        let bank = Bank::start(&latency).await;
        let forgetful_bank = Bank::start(&[&latency[..], &["--fault", &forget]].concat()).await;
        let auth = BrokerAuth { password: PASSWORD.to_owned(), tls: None };
        let broker = Broker::start(Kind::Nats, &auth).await.unwrap();
        broker.prepare(DESTINATION).await.unwrap();
        let store = Broker::start(Kind::Redis, &auth).await.unwrap();

        let operator = database.connect_as("symphony_operator").await.unwrap();
        for rail in RAILS {
            let mut policy = json!({"max_attempts": 20, "backoff_base_seconds": 1, "backoff_cap_seconds": 1});
            policy["ordered"] = json!(rail == ORDERED);
            if rail == FORGETFUL {
                policy["key_memory_seconds"] = json!(KEY_MEMORY_SECONDS);
            }
            let register = "select symphony.register_payment_rail($1, $2::text::jsonb, 'harness', 'a test')";
            operator.execute(register, &[&rail, &policy.to_string()]).await.unwrap();
        }
        let folder = tempfile::tempdir().unwrap();
        let lanes = lanes(&broker, &store, &folder);
        let settings = [url.clone(), cluster.multi_host_url(&url).unwrap()].map(|url| {
            let rails = RAILS.map(|rail| {
                let bank = if rail == FORGETFUL { &forgetful_bank } else { &bank }.address();
                let section = format!(
                    "kind = 'http'\nurl = 'http://{bank}/v1/payments'\n\
                     inquiry_url = 'http://{bank}/v1/payments/{{idempotency_key}}'\n\
                     allow_http = true\nallow_private = ['127.0.0.1']\n"
                );
                (rail.to_owned(), section)
            });
            let mut settings = Settings::new(&url, BTreeMap::from(rails)).payment("call_timeout", "'3s'");
            settings = settings.payment("lease", "'6s'");
            settings.extra.clone_from(&lanes);
            settings.log_level = "info";
            settings
        });
        let mut harness = Self {
            cluster,
            bank,
            forgetful_bank,
            broker,
            store,
            settings,
            relayers: Vec::new(),
            producer_url,
            folder,
            database,
        };
        harness.start_relayers().await;
        harness
    }

    async fn start_relayers(&mut self) {
        for settings in &self.settings {
            self.relayers.push(Relayer::start(settings, self.folder.path()).await);
        }
    }

    pub(crate) fn start_load(&self) -> Load {
        Load::start(&self.producer_url, &RAILS)
    }

    /// A session of the superuser on the leader.
    pub(crate) async fn superuser(&self) -> Client {
        let url = self.cluster.multi_host_url(&self.database.url()).unwrap();
        Target::parse(&url).unwrap().connect().await.unwrap()
    }

    /// Replaces the relayers, which must have survived every fault, expires their claims and waits until every row has
    /// ended. A claim of an event whose reply was lost lasts five minutes otherwise.
    pub(crate) async fn drain(&mut self) {
        for relayer in std::mem::take(&mut self.relayers) {
            assert!(relayer.program.is_running(), "{}", relayer.program.tail());
            relayer.stop().await;
        }
        let superuser = self.superuser().await;
        let expire = "update symphony.payment_outbox_pending set lease_expires_at = clock_timestamp()
                      where lease_token is not null;
                      update m10_recovery.outbox set claimed_at = claimed_at - interval '1 hour'
                      where processed_at is null and claimed_at is not null;
                      update symphony.metadata_outbox set processing_started_at = now() - interval '6 minutes'
                      where status = 'PROCESSING'";
        superuser.batch_execute(expire).await.unwrap();
        self.start_relayers().await;
        let due = "update m10_recovery.outbox set process_after = now() where id in (
                     select id from m10_recovery.outbox
                     where processed_at is null and claimed_at is null and process_after > now()
                     for update skip locked);
                   update symphony.metadata_outbox set next_retry_at = now() where id in (
                     select id from symphony.metadata_outbox where next_retry_at > now() for update skip locked)";
        let open = "select (select count(*) from symphony.payment_outbox_pending)
                         + (select count(*) from m10_recovery.outbox where processed_at is null)
                         + (select count(*) from symphony.metadata_outbox where status not in ('PUBLISHED', 'DLQ'))";
        until("every row has ended", DRAIN_TIMEOUT, async || {
            superuser.batch_execute(due).await.unwrap();
            superuser.query_one(open, &[]).await.unwrap().get::<_, i64>(0) == 0
        })
        .await
        .unwrap();
        for relayer in &self.relayers {
            relayer.stop().await;
        }
    }

    /// Drops the database.
    pub(crate) async fn close(self) {
        self.database.close().await.unwrap();
    }
}

/// The tests' PostgreSQL, or else another one that has what Patroni needs.
fn binaries() -> Binaries {
    let has_programs =
        |binaries: &Binaries| ["pg_basebackup", "pg_rewind"].iter().all(|name| binaries.program(name).is_file());
    let Some(found) = Binaries::every().into_iter().find(has_programs) else {
        panic!("this needs a PostgreSQL with pg_basebackup and pg_rewind: scripts/setup --postgres 18")
    };
    found
}

/// The sections of events and metadata.
fn lanes(broker: &Broker, store: &Broker, folder: &TempDir) -> String {
    let password = folder.path().join("password");
    std::fs::write(&password, PASSWORD).unwrap();
    let login = format!("user = '{USER}'\npassword_file = {password:?}\nallow_plain = true\n");
    format!(
        "[event]\nsource = '//shop.example'\norder = 'aggregate'\npoll_interval = '250ms'\n\
         [event.breaker]\nmax_open_for = '1s'\n\
         [[event.routes]]\naggregate_type = '*'\nevent_type = '*'\nsink = 'bus'\ndestination = '{DESTINATION}'\n\
         [sinks.bus]\nkind = 'nats'\nurl = 'nats://127.0.0.1:{}'\n{login}\
         [metadata]\npoll_interval = '250ms'\nrepair_every = '1s'\n\
         [metadata.breaker]\nmax_open_for = '1s'\n\
         [[metadata.routes]]\nentity_type = '*'\nstore = 'second'\n\
         [stores.second]\nkind = 'redis'\nurl = 'redis://127.0.0.1:{}'\n{login}",
        broker.port(),
        store.port()
    )
}
