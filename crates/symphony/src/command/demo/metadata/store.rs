//! Where metadata goes: a database of its own in the server of the demo, and a Redis of its own where there is one to be had.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use symphony_proof::kit::audit::metadata::Record;
use symphony_proof::kit::brokers::{self, Broker, Kind, Terms, USER};
use symphony_proof::shop::copies;
use tokio_postgres::Client;

use crate::command::demo::stage::Stage;
use crate::failure::Failure;

/// How long reading everything may take.
const PATIENCE: Duration = Duration::from_secs(120);
/// What the keys in Redis begin with: the default.
const PREFIX: &str = "symphony:metadata:";

/// One of the stores.
pub(super) enum Store {
    /// A table in a database of its own.
    Postgres { reader: Client, url: String },
    /// A server that keeps what it has confirmed.
    Redis { broker: Box<Broker> },
}

impl Store {
    /// Makes the second database.
    pub(super) async fn postgres(stage: &Stage) -> Result<Self, Failure> {
        copies::create(&stage.owner().await?).await?;
        let reader = stage.owner_of(copies::DATABASE).await?;
        copies::open(&reader).await?;
        Ok(Self::Postgres { reader, url: stage.url_of(copies::COPIER, copies::DATABASE) })
    }

    /// Starts a Redis, or says why there is none.
    pub(super) async fn redis(password: &str) -> Result<Self, String> {
        let terms = Terms { password: password.to_owned(), tls: None };
        match Broker::start(Kind::Redis, &terms).await {
            Ok(broker) => Ok(Self::Redis { broker: Box::new(broker) }),
            Err(brokers::Error::Find(error)) => Err(format!("there is no Redis for metadata: {error}")),
            Err(error) => Err(format!("Redis is here and does not start: {error}")),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Postgres { .. } => format!("the database {}", copies::DATABASE),
            Self::Redis { broker } => format!("Redis on port {}", broker.port()),
        }
    }

    /// The name of its section in the settings.
    pub(super) fn section_name(&self) -> &'static str {
        match self {
            Self::Postgres { .. } => "copies",
            Self::Redis { .. } => "cache",
        }
    }

    /// The section that leads here.
    pub(super) fn section(&self, password_file: &Path) -> String {
        match self {
            Self::Postgres { url, .. } => format!("kind = \"postgres\"\nurl = {url:?}\nallow_plain = true\n"),
            Self::Redis { broker } => format!(
                "kind = \"redis\"\nurl = \"redis://127.0.0.1:{}\"\nprefix = {PREFIX:?}\nuser = \"{USER}\"\n\
                 password_file = {password_file:?}\nallow_plain = true\n",
                broker.port()
            ),
        }
    }

    /// All that is there, as somebody finds it who is not the store.
    pub(super) async fn read(&self) -> Result<Vec<Record>, Failure> {
        match self {
            Self::Postgres { reader, .. } => Ok(copies::read(reader).await?),
            Self::Redis { broker } => {
                let read = tokio::time::timeout(PATIENCE, broker.hashes("")).await;
                let read = read.map_err(|_| Failure::no("Redis does not say which metadata it has"))?;
                let hashes =
                    read.map_err(|error| Failure::because("the metadata in Redis cannot be read", error))?;
                Ok(hashes.iter().map(|(key, fields)| record(key, fields)).collect())
            }
        }
    }
}

/// What is under a key. One that begins otherwise is the name of nobody's entity, and what is no number the version of none.
fn record(key: &str, fields: &BTreeMap<String, String>) -> Record {
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    Record {
        entity: key.strip_prefix(PREFIX).map_or_else(|| key.to_owned(), |entity| entity.replacen(':', "/", 1)),
        version: field("version").parse().unwrap_or(-1),
        entry_id: field("entry_id"),
        metadata: field("metadata"),
    }
}
