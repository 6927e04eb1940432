//! A real second store for one test: the test kills it, restarts it, and reads it without the relayer's code.

use std::collections::BTreeMap;
use std::path::Path;

use symphony_db::connect::Target;
use symphony_testkit::brokers::{Broker, BrokerAuth, Kind, USER};
use symphony_testkit::postgres::{Binaries, Cluster, Options};
use tokio_postgres::Client;

const PASSWORD: &str = "open-sesame-7";
const MANUAL: &str = include_str!("../../../../docs/sinks/metadata-postgres.md");

/// The version and metadata of each entity.
pub(crate) type Records = BTreeMap<(String, String), (i64, String)>;

/// A store that keeps confirmed writes when it is killed.
pub(crate) enum SecondStore {
    Postgres(Box<Cluster>),
    Redis(Box<Broker>),
}

impl SecondStore {
    /// A private server. It confirms commits before they are on disk, unless the session asks otherwise. The relayer's
    /// sessions must.
    pub(crate) async fn postgres() -> Self {
        let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
        let store = Self::Postgres(Box::new(cluster));
        let admin = store.admin().await;
        admin.batch_execute("create role symphony_copies login").await.unwrap();
        let table = MANUAL.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
        admin.batch_execute(table).await.unwrap();
        store
    }

    pub(crate) async fn redis() -> Self {
        let auth = BrokerAuth { password: PASSWORD.to_owned(), tls: None };
        Self::Redis(Box::new(Broker::start(Kind::Redis, &auth).await.unwrap()))
    }

    /// The settings section of this store.
    pub(crate) fn section(&self, folder: &Path) -> String {
        match self {
            Self::Postgres(cluster) => format!(
                "kind = 'postgres'\nallow_plain = true\n\
                 url = 'postgres://symphony_copies@127.0.0.1:{}/postgres?options=-c%20search_path%3Dcopies'\n",
                cluster.port()
            ),
            Self::Redis(broker) => {
                let password = folder.join("password");
                std::fs::write(&password, PASSWORD).unwrap();
                format!(
                    "kind = 'redis'\nallow_plain = true\nurl = 'redis://127.0.0.1:{}'\nuser = '{USER}'\n\
                     password_file = {password:?}\n",
                    broker.port()
                )
            }
        }
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill(&mut self) {
        match self {
            Self::Postgres(cluster) => cluster.kill9().await,
            Self::Redis(broker) => broker.kill9().await.unwrap(),
        }
    }

    /// Starts it again on the same data.
    pub(crate) async fn restart(&mut self) {
        match self {
            Self::Postgres(cluster) => cluster.restart().await.unwrap(),
            Self::Redis(broker) => broker.restart().await.unwrap(),
        }
    }

    /// All records in the store.
    pub(crate) async fn read(&self) -> Records {
        let Self::Redis(broker) = self else {
            let all = "select entity_type, entity_id, version, metadata::text from copies.symphony_metadata";
            let rows = self.admin().await.query(all, &[]).await.unwrap();
            return rows.iter().map(|row| ((row.get(0), row.get(1)), (row.get(2), row.get(3)))).collect();
        };
        let hashes = broker.hashes("symphony:metadata:").await.unwrap();
        let record = |fields: BTreeMap<String, String>| {
            let field = |name: &str| fields[name].clone();
            ((field("entity_type"), field("entity_id")), (field("version").parse().unwrap(), field("metadata")))
        };
        hashes.into_values().map(record).collect()
    }

    /// A superuser session of the PostgreSQL store.
    pub(crate) async fn admin(&self) -> Client {
        let Self::Postgres(cluster) = self else { panic!("this store is not PostgreSQL") };
        Target::parse(&cluster.url("postgres")).unwrap().connect().await.unwrap()
    }
}
