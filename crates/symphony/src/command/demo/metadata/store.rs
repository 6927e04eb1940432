//! The stores of the demo's metadata: a second database on the demo's server, and a private Redis if it is installed.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use symphony_testkit::brokers::{self, Broker, BrokerAuth, Kind, USER};
use symphony_testkit::reconciliation::metadata::Record;
use symphony_testkit::shop::second_store;
use tokio_postgres::Client;

use crate::command::demo::environment::DemoEnvironment;
use crate::failure::Failure;

/// How long reading all records may take.
const READ_TIMEOUT: Duration = Duration::from_secs(120);
/// The default prefix of the keys in Redis.
const KEY_PREFIX: &str = "symphony:metadata:";

/// A store.
pub(super) enum Store {
    /// A table in the second database.
    Postgres { reader: Client, url: String },
    /// A Redis that persists confirmed writes.
    Redis { broker: Box<Broker> },
}

impl Store {
    /// Creates the second database.
    pub(super) async fn postgres(environment: &DemoEnvironment) -> Result<Self, Failure> {
        second_store::create_database(&environment.owner().await?).await?;
        let reader = environment.owner_of(second_store::DATABASE).await?;
        second_store::create_table(&reader).await?;
        Ok(Self::Postgres { reader, url: environment.url_of(second_store::WRITER, second_store::DATABASE) })
    }

    /// Starts a Redis, or returns why there is none.
    pub(super) async fn redis(password: &str) -> Result<Self, String> {
        let auth = BrokerAuth { password: password.to_owned(), tls: None };
        match Broker::start(Kind::Redis, &auth).await {
            Ok(broker) => Ok(Self::Redis { broker: Box::new(broker) }),
            Err(brokers::Error::Find(error)) => Err(format!("Redis for metadata is not installed: {error}")),
            Err(error) => Err(format!("Redis for metadata does not start: {error}")),
        }
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Postgres { .. } => format!("the database {}", second_store::DATABASE),
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

    /// The settings of the store.
    pub(super) fn section(&self, password_file: &Path) -> String {
        match self {
            Self::Postgres { url, .. } => format!("kind = \"postgres\"\nurl = {url:?}\nallow_plain = true\n"),
            Self::Redis { broker } => format!(
                "kind = \"redis\"\nurl = \"redis://127.0.0.1:{}\"\nprefix = {KEY_PREFIX:?}\nuser = \"{USER}\"\n\
                 password_file = {password_file:?}\nallow_plain = true\n",
                broker.port()
            ),
        }
    }

    /// All records, read by a client that is not the sink.
    pub(super) async fn read(&self) -> Result<Vec<Record>, Failure> {
        match self {
            Self::Postgres { reader, .. } => Ok(second_store::read(reader).await?),
            Self::Redis { broker } => {
                let read = tokio::time::timeout(READ_TIMEOUT, broker.hashes("")).await;
                let read = read.map_err(|_| Failure::new("Redis did not return its records in time"))?;
                let hashes = read.map_err(|error| Failure::because("cannot read the metadata in Redis", error))?;
                Ok(hashes.iter().map(|(key, fields)| record(key, fields)).collect())
            }
        }
    }
}

/// The record of a key. A key without the prefix is no entity of the demo, and a version that is no number becomes -1.
fn record(key: &str, fields: &BTreeMap<String, String>) -> Record {
    let field = |name: &str| fields.get(name).cloned().unwrap_or_default();
    Record {
        entity: key.strip_prefix(KEY_PREFIX).map_or_else(|| key.to_owned(), |entity| entity.replacen(':', "/", 1)),
        version: field("version").parse().unwrap_or(-1),
        entry_id: field("entry_id"),
        metadata: field("metadata"),
    }
}
