//! The yard in which a test breaks things: a database, a bank, relayers, and the audit at the end.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use symphony_outbox::connect::Target;
use symphony_proof::kit::audit::{self, Report};
use symphony_proof::kit::scratch::{Database, Server};
use symphony_proof::kit::wait::{BOUND, until};
use tempfile::TempDir;
use tokio_postgres::Client;

use crate::bank::Bank;
use crate::load::{Committed, Load, Till, instruction};
use crate::relayer::{Orders, Relayer};

/// The rail that most tests use.
pub(crate) const RAIL: &str = "sepa";
/// The rail on which instructions of a participant leave in their order.
pub(crate) const ORDERED: &str = "wire";

/// Everything that one test has.
pub(crate) struct Yard {
    pub(crate) bank: Bank,
    pub(crate) database: Database,
    /// The login of relayers.
    pub(crate) url: String,
    /// The login of producers.
    pub(crate) till_url: String,
    /// Where the superuser looks: another server after a failover.
    pub(crate) place: Target,
    pub(crate) folder: TempDir,
    committed: Committed,
}

impl Yard {
    /// A database of the server that all tests share, and a bank without faults.
    pub(crate) async fn open() -> Self {
        Self::on(Server::from_env().await.unwrap().database().await.unwrap()).await
    }

    /// The same on this database.
    pub(crate) async fn on(database: Database) -> Self {
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        let till_url = database.url_as_login(&["symphony_ingest"]).await.unwrap();
        let (place, folder) = (database.target(), tempfile::tempdir().unwrap());
        let (bank, committed) = (Bank::start(&[]).await, Committed::default());
        let yard = Self { bank, database, url, till_url, place, folder, committed };
        yard.rail(RAIL, &json!({})).await;
        yard
    }

    /// Registers a rail, or changes it, with retries that a test can wait for.
    pub(crate) async fn rail(&self, name: &str, policy: &Value) {
        let mut whole = json!({"backoff_base_seconds": 1, "backoff_cap_seconds": 1});
        for (field, value) in policy.as_object().unwrap() {
            whole[field] = value.clone();
        }
        let operator = self.database.connect_as("symphony_operator").await.unwrap();
        let set = "select case when exists (select from symphony.payment_rail_policies where rail_type = $1)
                     then symphony.set_payment_rail($1, $2::text::jsonb, 'yard', 'a test')
                     else symphony.register_payment_rail($1, $2::text::jsonb, 'yard', 'a test') end";
        operator.execute(set, &[&name, &whole.to_string()]).await.unwrap();
    }

    /// What a relayer is told that serves these rails, all of which lead to the bank.
    pub(crate) fn orders_for(&self, rails: &[&str]) -> Orders {
        let bank = self.bank.address();
        let section = format!(
            "kind = 'http'\nurl = 'http://{bank}/v1/payments'\n\
             inquiry_url = 'http://{bank}/v1/payments/{{idempotency_key}}'\n\
             allow_http = true\nallow_private = ['127.0.0.1']\n"
        );
        let rails: BTreeMap<_, _> = rails.iter().map(|rail| ((*rail).to_owned(), section.clone())).collect();
        Orders::new(&self.url, rails)
    }

    /// What a relayer is told that serves the one rail.
    pub(crate) fn orders(&self) -> Orders {
        self.orders_for(&[RAIL])
    }

    /// Starts a relayer with these orders.
    pub(crate) async fn relayer(&self, orders: &Orders) -> Relayer {
        Relayer::start(orders, self.folder.path()).await
    }

    /// Enqueues so many instructions.
    pub(crate) async fn enqueue(&self, producer: &str, count: usize) {
        let mut till = self.till();
        for number in 0..count {
            till.enqueue(&instruction(producer, number, RAIL)).await;
        }
    }

    /// A session of a producer.
    pub(crate) fn till(&self) -> Till {
        self.till_at(&self.till_url)
    }

    /// The same by another way.
    pub(crate) fn till_at(&self, url: &str) -> Till {
        Till::at(url, &self.committed)
    }

    /// Producers that go on.
    pub(crate) fn load(&self, rails: &[&str]) -> Load {
        Load::begin(&self.till_url, 2, rails, &self.committed)
    }

    /// A session of the superuser.
    pub(crate) async fn owner(&self) -> Client {
        self.place.connect().await.unwrap()
    }

    /// One number.
    pub(crate) async fn number(&self, question: &str) -> i64 {
        self.owner().await.query_one(question, &[]).await.unwrap().get(0)
    }

    /// Waits until nothing is pending.
    pub(crate) async fn is_done(&self) {
        let owner = self.owner().await;
        let pending = "select count(*) from symphony.payment_outbox_pending";
        let so = async || owner.query_one(pending, &[]).await.unwrap().get::<_, i64>(0) == 0;
        until("nothing is pending", 2 * BOUND, so).await.unwrap();
    }

    /// Waits until all is carried, and compares what was enqueued, the ledger and the bank, row by row: nothing is lost,
    /// nothing was paid twice, ordered rails kept their order, and every lease has one row.
    pub(crate) async fn audit(&self) -> Report {
        self.is_done().await;
        let books = audit::read(&mut self.owner().await).await.unwrap();
        let committed = self.committed.lock().unwrap().clone();
        let report = audit::compare(&books, &self.bank.ledger().await, Some(&committed));
        assert!(report.holds(), "{report}");
        let twice = "select count(*) from (select from symphony.payment_outbox_attempts
                     group by outbox_id, claimed_at, worker_id having count(*) > 1) t";
        assert_eq!(self.number(twice).await, 0, "leases with two rows in the ledger");
        report
    }

    /// How much is pending.
    pub(crate) async fn pending(&self) -> i64 {
        self.number("select count(*) from symphony.payment_outbox_pending").await
    }

    /// Waits until so many leases are held.
    pub(crate) async fn leases_are_held(&self, count: usize) {
        let held = "select count(*) from symphony.payment_outbox_pending where lease_token is not null";
        let so = async || self.number(held).await == i64::try_from(count).unwrap();
        until(format!("{count} leases are held"), BOUND, so).await.unwrap();
    }

    /// Lets the leases run out: time is moved, not waited for.
    pub(crate) async fn expire_leases(&self) {
        let expire = "update symphony.payment_outbox_pending set lease_expires_at = clock_timestamp()
                      where lease_token is not null";
        self.owner().await.batch_execute(expire).await.unwrap();
    }
}
