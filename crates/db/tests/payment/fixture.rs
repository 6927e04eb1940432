//! Where the tests of this crate play: a database with Symphony, a rail, a business table, and logins that hold one
//! role each.

use std::time::Duration;

use serde_json::json;
use symphony_client::payment::{Enqueued, Instruction, tokio_postgres as producer};
use symphony_db::payment::operator::{AuditContext, register_rail};
use symphony_db::payment::worker::{Claimed, claim};
use symphony_db::payment::{Completion, Outcome, RailAnswer, RailPolicy, Reason};
use symphony_db::{BatchSize, WorkerId};
use symphony_testkit::test_database::{Database, Server};
use tokio_postgres::{Client, NoTls};

pub(crate) const RAIL: &str = "sepa";
pub(crate) const AUDIT: AuditContext<'static> = AuditContext { actor: "Ada", reason: "a test" };
pub(crate) const LEASE: Duration = Duration::from_secs(60);

pub(crate) struct Fixture {
    pub(crate) database: Database,
    /// A superuser, for what no login of Symphony may do.
    pub(crate) root: Client,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let root = database.connect().await.unwrap();
        register_rail(&root, RAIL, &RailPolicy::default(), AUDIT).await.unwrap();
        root.batch_execute("create table orders (id text primary key); grant all on orders to public")
            .await
            .unwrap();
        Self { database, root }
    }

    /// A login that holds this role and no other.
    pub(crate) async fn login(&self, role: &str) -> Client {
        connect(&self.database.url_as_login(&[role]).await.unwrap()).await
    }

    pub(crate) async fn enqueue(&self, number: u32) -> Enqueued {
        producer::enqueue(&self.root, &instruction(number)).await.unwrap()
    }

    pub(crate) async fn claim(&self) -> Vec<Claimed> {
        claim(&self.root, &worker(), BatchSize::MAX, LEASE).await.unwrap()
    }

    /// Enqueues one instruction and takes it.
    pub(crate) async fn claimed(&self, number: u32) -> Claimed {
        self.enqueue(number).await;
        self.claim().await.remove(0)
    }

    /// What would otherwise take the time of a lease.
    pub(crate) async fn let_leases_expire(&self) {
        let sql =
            "update symphony.payment_outbox_pending set lease_expires_at = now() where lease_token is not null";
        self.root.batch_execute(sql).await.unwrap();
    }
}

pub(crate) async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}

pub(crate) fn worker() -> WorkerId {
    "worker-1".into()
}

pub(crate) fn instruction(number: u32) -> Instruction {
    Instruction::new(
        format!("instruction-{number}"),
        "participant-1",
        format!("key-{number}"),
        RAIL,
        json!({ "amount": "10.50", "currency": "EUR", "number": number }),
    )
}

pub(crate) fn dispatched() -> Outcome {
    Outcome::Dispatched { rail: RailAnswer { reference: Some("ref-1".to_owned()), code: Some("ACCP".to_owned()) } }
}

pub(crate) fn failed(code: &str) -> Outcome {
    Outcome::Failed { reason: reason(code), rail: RailAnswer::default() }
}

pub(crate) fn retryable(delay: Option<Duration>) -> Outcome {
    Outcome::Retryable { reason: reason("RAIL_BUSY"), rail: RailAnswer::default(), delay }
}

pub(crate) fn reason(code: &str) -> Reason {
    Reason { code: code.to_owned(), message: Some("it did not work".to_owned()) }
}

pub(crate) fn completion(claimed: &Claimed, outcome: Outcome) -> Completion {
    Completion { lease: claimed.lease(), outcome, latency: Some(Duration::from_millis(42)) }
}

/// The value with a change to its fields.
pub(crate) fn changed<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
