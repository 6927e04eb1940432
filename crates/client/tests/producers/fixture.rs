//! A test database with Symphony, a registered rail, two business tables, and logins that hold one role each.

use serde_json::json;
use symphony_client::event::Event;
use symphony_client::metadata::{Entity, Entry};
use symphony_client::payment::{self, Enqueued, Instruction};
use symphony_db::payment::RailPolicy;
use symphony_db::payment::operator::{AuditContext, register_rail};
use symphony_testkit::test_database::{Database, Server};
use tokio_postgres::{Client, NoTls};

pub(crate) const RAIL: &str = "sepa";
pub(crate) const PAYMENTS: &str = "symphony.payment_outbox_pending";
pub(crate) const EVENTS: &str = "m10_recovery.outbox";
pub(crate) const ENTRIES: &str = "symphony.metadata_outbox";

const TABLES: &str = "
    create table orders (id text primary key);
    create table documents (id text primary key);
    grant all on orders, documents to public";

pub(crate) struct Fixture {
    pub(crate) database: Database,
    /// A superuser, for what no login of Symphony may do.
    pub(crate) root: Client,
}

impl Fixture {
    pub(crate) async fn new() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let root = database.connect().await.unwrap();
        let audit = AuditContext { actor: "Ada", reason: "a test" };
        register_rail(&root, RAIL, &RailPolicy::default(), audit).await.unwrap();
        root.batch_execute(TABLES).await.unwrap();
        Self { database, root }
    }

    /// A login that holds this role and no other.
    pub(crate) async fn login(&self, role: &str) -> Client {
        let url = self.database.url_as_login(&[role]).await.unwrap();
        let (client, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        client
    }

    /// The same over sqlx.
    pub(crate) async fn login_sqlx(&self, role: &str) -> sqlx::PgConnection {
        use sqlx::Connection as _;
        sqlx::PgConnection::connect(&self.database.url_as_login(&[role]).await.unwrap()).await.unwrap()
    }

    pub(crate) async fn enqueue(&self, number: u32) -> Enqueued {
        payment::tokio_postgres::enqueue(&self.root, &instruction(number)).await.unwrap()
    }

    /// One text out of the database.
    pub(crate) async fn text(&self, sql: &str) -> String {
        self.root.query_one(sql, &[]).await.unwrap().get(0)
    }

    pub(crate) async fn count(&self, from: &str) -> i64 {
        self.root.query_one(&format!("select count(*) from {from}"), &[]).await.unwrap().get(0)
    }
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

pub(crate) fn event(number: u32) -> Event {
    Event::new("order", format!("order-{number}"), "OrderPlaced", json!({ "total": "10.50", "number": number }))
}

pub(crate) fn entity(number: u32) -> Entity {
    Entity::new("document", format!("document-{number}")).unwrap()
}

pub(crate) fn entry(number: u32) -> Entry {
    Entry::new(entity(number), json!({ "title": "Contract", "number": number }))
}

/// The value with a change to its fields.
pub(crate) fn changed<T>(mut value: T, change: impl FnOnce(&mut T)) -> T {
    change(&mut value);
    value
}
