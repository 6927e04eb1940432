//! The fixture of these tests: a database with Symphony, a business table, and logins that hold one role each.

use serde_json::json;
use symphony_client::event::tokio_postgres as publisher;
use symphony_db::BatchSize;
use symphony_db::event::worker::{Claim, claim};
use symphony_db::event::{Event, EventId};
use symphony_testkit::test_database::{Database, Server};
use tokio_postgres::{Client, NoTls};

pub(crate) struct Fixture {
    pub(crate) database: Database,
    /// A superuser, for what no login of Symphony may do.
    pub(crate) root: Client,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let root = database.connect().await.unwrap();
        root.batch_execute("create table orders (id text primary key); grant all on orders to public")
            .await
            .unwrap();
        Self { database, root }
    }

    /// A login that holds this role and no other.
    pub(crate) async fn login(&self, role: &str) -> Client {
        let url = self.database.url_as_login(&[role]).await.unwrap();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    pub(crate) async fn publish(&self, number: u32) -> EventId {
        publisher::publish(&self.root, &event(number)).await.unwrap()
    }

    pub(crate) async fn claim(&self) -> Claim {
        claim(&self.root, &"worker-1".into(), BatchSize::MAX).await.unwrap()
    }

    /// Makes all claims older than five minutes.
    pub(crate) async fn expire_claims(&self) {
        let sql = "update m10_recovery.outbox set claimed_at = now() - interval '6 minutes' \
                   where claimed_at is not null and processed_at is null";
        self.root.batch_execute(sql).await.unwrap();
    }

    pub(crate) async fn count(&self, from: &str) -> i64 {
        self.root.query_one(&format!("select count(*) from {from}"), &[]).await.unwrap().get(0)
    }
}

pub(crate) const OUTBOX: &str = "m10_recovery.outbox";

pub(crate) fn event(number: u32) -> Event {
    Event::new("order", format!("order-{number}"), "OrderPlaced", json!({ "total": "10.50", "number": number }))
}

/// The value with a change to its fields.
pub(crate) fn changed<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
