//! The harness of a test: a test database, a simulated bank, relayers, and the reconciliation at the end.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use symphony_db::connect::Target;
use symphony_testkit::protocol::{replay, trace};
use symphony_testkit::reconciliation::{self, Report};
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::bank::Bank;
use crate::producers::{Committed, Producer, Producers, instruction};
use crate::relayer::{Relayer, Settings};

/// The rail that most tests use.
pub(crate) const RAIL: &str = "sepa";
/// The rail on which each participant's payments are dispatched in sequence.
pub(crate) const ORDERED: &str = "wire";

/// A test database, a simulated bank and the logins of relayers and producers.
pub(crate) struct Harness {
    pub(crate) bank: Bank,
    pub(crate) database: Database,
    /// The login of relayers.
    pub(crate) url: String,
    /// The login of producers.
    pub(crate) producer_url: String,
    /// The server that the superuser queries; a failover test changes it.
    pub(crate) target: Target,
    pub(crate) folder: TempDir,
    committed: Committed,
}

impl Harness {
    /// Starts a bank without faults beside a new database on the server that all tests share.
    pub(crate) async fn start() -> Self {
        Self::on_database(Server::from_env().await.unwrap().database().await.unwrap()).await
    }

    /// Starts a bank without faults beside this database.
    pub(crate) async fn on_database(database: Database) -> Self {
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let producer_url = database.url_as_login(&["symphony_ingest"]).await.unwrap();
        let (target, folder) = (database.target(), tempfile::tempdir().unwrap());
        let (bank, committed) = (Bank::start(&[]).await, Committed::default());
        let harness = Self { bank, database, url, producer_url, target, folder, committed };
        harness.set_rail(RAIL, &json!({})).await;
        harness
    }

    /// Registers a rail, or changes its policy. The backoff is one second unless the policy says otherwise.
    pub(crate) async fn set_rail(&self, name: &str, policy: &Value) {
        let mut merged = json!({"backoff_base_seconds": 1, "backoff_cap_seconds": 1});
        for (field, value) in policy.as_object().unwrap() {
            merged[field] = value.clone();
        }
        let operator = self.database.connect_as("symphony_operator").await.unwrap();
        let set = "select case when exists (select from symphony.payment_rail_policies where rail_type = $1)
                     then symphony.set_payment_rail($1, $2::text::jsonb, 'harness', 'a test')
                     else symphony.register_payment_rail($1, $2::text::jsonb, 'harness', 'a test') end";
        operator.execute(set, &[&name, &merged.to_string()]).await.unwrap();
    }

    /// Settings of a relayer that serves these rails, each routed to the bank.
    pub(crate) fn settings_for(&self, rails: &[&str]) -> Settings {
        let bank = self.bank.address();
        let section = format!(
            "kind = 'http'\nurl = 'http://{bank}/v1/payments'\n\
             inquiry_url = 'http://{bank}/v1/payments/{{idempotency_key}}'\n\
             allow_http = true\nallow_private = ['127.0.0.1']\n"
        );
        let rails: BTreeMap<_, _> = rails.iter().map(|rail| ((*rail).to_owned(), section.clone())).collect();
        Settings::new(&self.url, rails)
    }

    /// Settings of a relayer that serves [`RAIL`].
    pub(crate) fn settings(&self) -> Settings {
        self.settings_for(&[RAIL])
    }

    /// Starts a relayer with these settings.
    pub(crate) async fn start_relayer(&self, settings: &Settings) -> Relayer {
        Relayer::start(settings, self.folder.path()).await
    }

    /// Enqueues this many instructions on [`RAIL`].
    pub(crate) async fn enqueue(&self, name: &str, count: usize) {
        let mut producer = self.producer();
        for number in 0..count {
            producer.enqueue(&instruction(name, number, RAIL)).await;
        }
    }

    /// A producer with one session.
    pub(crate) fn producer(&self) -> Producer {
        self.producer_at(&self.producer_url)
    }

    /// A producer that connects to this URL, for example through a proxy.
    pub(crate) fn producer_at(&self, url: &str) -> Producer {
        Producer::at(url, &self.committed)
    }

    /// Starts producers that enqueue until they are stopped.
    pub(crate) fn start_producers(&self, rails: &[&str]) -> Producers {
        Producers::start(&self.producer_url, 2, rails, &self.committed)
    }

    /// A session of the superuser.
    pub(crate) async fn superuser(&self) -> Client {
        self.target.connect().await.unwrap()
    }

    /// Runs a query that returns one number.
    pub(crate) async fn query_number(&self, query: &str) -> i64 {
        self.superuser().await.query_one(query, &[]).await.unwrap().get(0)
    }

    /// Waits until nothing is pending.
    pub(crate) async fn wait_until_drained(&self) {
        let superuser = self.superuser().await;
        let pending = "select count(*) from symphony.payment_outbox_pending";
        let condition = async || superuser.query_one(pending, &[]).await.unwrap().get::<_, i64>(0) == 0;
        until("nothing is pending", 2 * DEFAULT_TIMEOUT, condition).await.unwrap();
    }

    /// Waits until nothing is pending, then compares the enqueued payments, the ledger and the bank's own records.
    ///
    /// It fails if a payment is lost or was paid twice, if an ordered rail broke its order, if a lease has two ledger rows, or
    /// if the protocol does not allow a step of the run.
    pub(crate) async fn reconcile(&self) -> Report {
        self.wait_until_drained().await;
        let books = reconciliation::read(&mut self.superuser().await).await.unwrap();
        let committed = self.committed.lock().unwrap().clone();
        let report = reconciliation::compare(&books, &self.bank.ledger().await, Some(&committed));
        assert!(report.holds(), "{report}");
        let twice = "select count(*) from (select from symphony.payment_outbox_attempts
                     group by outbox_id, claimed_at, worker_id having count(*) > 1) t";
        assert_eq!(self.query_number(twice).await, 0, "leases with two rows in the ledger");
        self.replay().await;
        report
    }

    /// Replays the run by the rules of the protocol model, and fails at the first step that they do not allow.
    async fn replay(&self) {
        let trace = trace::read(&mut self.superuser().await).await.unwrap();
        let requests = self.bank.trace().await;
        match replay::replay(&trace, &requests) {
            Ok(replayed) => println!("replayed by the protocol: {replayed:?}"),
            Err(deviation) => panic!("{deviation}"),
        }
    }

    /// Opens an epoch as an operator, so that numbers begin anew.
    pub(crate) async fn open_epoch(&self) {
        let operator = self.database.connect_as("symphony_operator").await.unwrap();
        operator.execute("select symphony.open_epoch('harness', 'a test')", &[]).await.unwrap();
    }

    /// How many payments are pending.
    pub(crate) async fn pending_count(&self) -> i64 {
        self.query_number("select count(*) from symphony.payment_outbox_pending").await
    }

    /// Waits until exactly this many leases are held.
    pub(crate) async fn wait_for_leases(&self, count: usize) {
        let held = "select count(*) from symphony.payment_outbox_pending where lease_token is not null";
        let condition = async || self.query_number(held).await == i64::try_from(count).unwrap();
        until(format!("{count} leases are held"), DEFAULT_TIMEOUT, condition).await.unwrap();
    }

    /// Expires all leases at once, so that a test need not wait for them.
    pub(crate) async fn expire_leases(&self) {
        let expire = "update symphony.payment_outbox_pending set lease_expires_at = clock_timestamp()
                      where lease_token is not null";
        self.superuser().await.batch_execute(expire).await.unwrap();
    }
}
