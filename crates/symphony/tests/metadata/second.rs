//! The second store of one test: killed, started again, and read by somebody who is not the store of the relayer.

use std::collections::BTreeMap;
use std::path::Path;

use symphony_outbox::connect::Target;
use symphony_proof::kit::brokers::{Broker, Kind, Terms, USER};
use symphony_proof::kit::postgres::{Binaries, Cluster, Options};
use tokio_postgres::Client;

const PASSWORD: &str = "open-sesame-7";
const MANUAL: &str = include_str!("../../../../docs/sinks/metadata-postgres.md");

/// What is kept of an entity: its version and its metadata.
pub(crate) type Kept = BTreeMap<(String, String), (i64, String)>;

/// A store that keeps what it has confirmed, over kills too.
pub(crate) enum Second {
    Postgres(Box<Cluster>),
    Redis(Box<Broker>),
}

impl Second {
    /// A server of its own. It answers before it has written, unless it is told otherwise: that is for the relayer's store to do.
    pub(crate) async fn postgres() -> Self {
        let cluster = Cluster::start(&Binaries::find().unwrap(), Options::default()).await.unwrap();
        let second = Self::Postgres(Box::new(cluster));
        let admin = second.admin().await;
        admin.batch_execute("create role symphony_copies login").await.unwrap();
        let table = MANUAL.split("```sql\n").nth(1).unwrap().split("```").next().unwrap();
        admin.batch_execute(table).await.unwrap();
        second
    }

    pub(crate) async fn redis() -> Self {
        let terms = Terms { password: PASSWORD.to_owned(), tls: None };
        Self::Redis(Box::new(Broker::start(Kind::Redis, &terms).await.unwrap()))
    }

    /// The section of the store that leads here.
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

    /// Kills it in the middle of whatever it does.
    pub(crate) async fn kill(&mut self) {
        match self {
            Self::Postgres(cluster) => cluster.kill9().await,
            Self::Redis(broker) => broker.kill9().await.unwrap(),
        }
    }

    /// Starts it again on what it had.
    pub(crate) async fn revive(&mut self) {
        match self {
            Self::Postgres(cluster) => cluster.restart().await.unwrap(),
            Self::Redis(broker) => broker.restart().await.unwrap(),
        }
    }

    /// All that is kept.
    pub(crate) async fn read(&self) -> Kept {
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

    /// A session of the superuser, where it is PostgreSQL.
    pub(crate) async fn admin(&self) -> Client {
        let Self::Postgres(cluster) = self else { panic!("no PostgreSQL") };
        Target::parse(&cluster.url("postgres")).unwrap().connect().await.unwrap()
    }
}
