//! The fixture of these tests: a database with Symphony, a business table, and logins that hold one role each.

use serde_json::json;
use symphony_client::metadata::tokio_postgres as producer;
use symphony_db::metadata::{Claimed, Entity, Entry, EntryId, Reason, worker};
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
        root.batch_execute("create table documents (id text primary key); grant all on documents to public")
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

    pub(crate) async fn create(&self, number: u32) -> EntryId {
        producer::create(&self.root, &entry(number)).await.unwrap()
    }

    /// A claimed entry with this many retries.
    pub(crate) async fn claimed(&self, max_retries: i32) -> Claimed {
        let entry = entry(1).with_max_retries(max_retries);
        producer::create(&self.root, &entry).await.unwrap();
        self.claim().await.remove(0)
    }

    pub(crate) async fn claim(&self) -> Vec<Claimed> {
        worker::claim(&self.root, &"worker-1".into(), 1000).await.unwrap().entries
    }

    /// Makes all claims older than five minutes.
    pub(crate) async fn expire_claims(&self) {
        let sql = "update symphony.metadata_outbox set processing_started_at = now() - interval '6 minutes' \
                   where status = 'PROCESSING'";
        self.root.batch_execute(sql).await.unwrap();
    }

    /// Makes all retries due.
    pub(crate) async fn make_due(&self) {
        let sql = "update symphony.metadata_outbox set next_retry_at = now() where next_retry_at is not null";
        self.root.batch_execute(sql).await.unwrap();
    }

    pub(crate) async fn count(&self, from: &str) -> i64 {
        self.root.query_one(&format!("select count(*) from {from}"), &[]).await.unwrap().get(0)
    }
}

pub(crate) fn entity(number: u32) -> Entity {
    Entity::new("document", format!("document-{number}")).unwrap()
}

pub(crate) fn entry(number: u32) -> Entry {
    Entry::new(entity(number), json!({ "title": "Contract", "number": number }))
}

pub(crate) fn reason(text: &str) -> Reason {
    Reason::new(text).unwrap()
}
