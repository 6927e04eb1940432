//! The destinations of the deliver scenario: real servers, each started for one measurement.
//!
//! - `http`: a `symphony bank` process, which receives payments
//! - `nats`, `redis`, `rabbitmq`: private brokers, which receive events
//! - `kafka`: a given cluster, or the mock cluster of librdkafka in its own process; see [`kafka`]

#[cfg(feature = "kafka")]
mod kafka;

use std::collections::HashMap;
use std::fs;
use std::path::PathBuf;

use serde::Serialize;
use symphony_db::schema::Lane;
use symphony_testkit::bench_database::resource_usage;
use symphony_testkit::brokers::{self, Broker, BrokerAuth, Kind};
use symphony_testkit::reconciliation::{self, Execution};
use tempfile::TempDir;
use uuid::Uuid;

use super::plan::Plan;
use crate::command::bank_process::BankProcess;
use crate::command::broker_sink;
use crate::failure::Failure;
#[cfg(feature = "kafka")]
pub(super) use kafka::serve_mock as serve_kafka_mock;

/// The name of the sink, and of the subject, stream, queue or topic in it.
const SINK: &str = "bench";
const ROUTE_DESTINATION: &str = "symphony-bench";
/// What the relayers log goes into the error if a dispatch fails.
const COMMON_SETTINGS: &str = "[relayer]\nlog_level = \"warn\"\n";
/// Connections stay open between payments, one per slot: without this, each payment opens one.
const IDLE_TIMEOUT: &str = "10s";
const DEFAULT_IDLE_CONNECTIONS: usize = 64;

/// What `--to` selects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum DestinationKind {
    Http,
    Nats,
    Redis,
    #[value(name = "rabbitmq")]
    RabbitMq,
    Kafka,
}

impl DestinationKind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Http => "http",
            Self::Nats => "nats",
            Self::Redis => "redis",
            Self::RabbitMq => "rabbitmq",
            Self::Kafka => "kafka",
        }
    }

    /// The lane whose rows it receives.
    pub(super) fn lane(self) -> Lane {
        match self {
            Self::Http => Lane::Payment,
            Self::Nats | Self::Redis | Self::RabbitMq | Self::Kafka => Lane::Event,
        }
    }
}

/// Why a destination cannot be measured, and what to do next.
#[derive(Debug, Serialize)]
pub(super) struct Unavailable {
    to: &'static str,
    reason: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'static str>,
}

impl Unavailable {
    fn new(kind: DestinationKind, reason: impl Into<String>) -> Self {
        Self { to: kind.name(), reason: reason.into(), hint: None }
    }

    fn because(kind: DestinationKind, failure: &Failure) -> Self {
        let reason = failure.render();
        Self::new(kind, reason.trim_start_matches("error: ").trim_end())
    }

    fn hint(self, hint: &'static str) -> Self {
        Self { hint: Some(hint), ..self }
    }

    pub(super) fn is_of(&self, kind: DestinationKind) -> bool {
        self.to == kind.name()
    }

    pub(super) fn failure(&self) -> Failure {
        let failure = Failure::new(format!("deliver --to {} was not measured: {}", self.to, self.reason));
        match self.hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}

/// A running destination.
pub(super) struct Destination {
    server: Server,
    /// The bank's ledger, or the broker's password.
    folder: TempDir,
}

enum Server {
    Bank(BankProcess),
    Broker {
        kind: Kind,
        broker: Box<Broker>,
    },
    #[cfg(feature = "kafka")]
    Kafka(kafka::Cluster),
}

impl Destination {
    /// Starts the server, and creates what must exist before the first row arrives.
    pub(super) async fn start(kind: DestinationKind, kafka_brokers: &[String]) -> Result<Self, Unavailable> {
        let does_not_start = |failure: Failure| Unavailable::because(kind, &failure);
        let folder = TempDir::with_prefix("symphony-bench-")
            .map_err(|error| Failure::because("cannot create a temporary folder", error))
            .map_err(does_not_start)?;
        let server = match kind {
            DestinationKind::Http => start_bank(&folder).await.map(Server::Bank).map_err(does_not_start)?,
            DestinationKind::Nats => start_broker(kind, Kind::Nats, &folder).await?,
            DestinationKind::Redis => start_broker(kind, Kind::Redis, &folder).await?,
            DestinationKind::RabbitMq => start_broker(kind, Kind::RabbitMq, &folder).await?,
            #[cfg(feature = "kafka")]
            DestinationKind::Kafka => {
                kafka::Cluster::open(kafka_brokers).await.map(Server::Kafka).map_err(does_not_start)?
            }
            #[cfg(not(feature = "kafka"))]
            DestinationKind::Kafka => {
                let _ = kafka_brokers;
                return Err(Unavailable::new(kind, "this build has no sink for Kafka")
                    .hint("build with: cargo build --release -p symphony --features kafka"));
            }
        };
        Ok(Self { server, folder })
    }

    /// What the server is.
    pub(super) fn name(&self) -> &'static str {
        match &self.server {
            Server::Bank(_) => "the simulated bank",
            Server::Broker { kind, .. } => broker_sink::kind_name(*kind),
            #[cfg(feature = "kafka")]
            Server::Kafka(cluster) => cluster.name(),
        }
    }

    /// The settings of `symphony run` for relayers that deliver the rows of this name here.
    pub(super) fn relayer_settings(&self, plan: &Plan, name: &str) -> String {
        let mut lane = format!("[{}]\n", plan.lane.name());
        for (setting, value) in [("slots", plan.slots), ("max_batch", plan.batch_size)] {
            if let Some(value) = value {
                lane.push_str(&format!("{setting} = {value}\n"));
            }
        }
        let sink = match &self.server {
            Server::Bank(bank) => {
                // Repair would also end expired leases on other rails.
                lane.push_str("repair_every = \"0s\"\n");
                let connections = plan.slots.unwrap_or_default().max(DEFAULT_IDLE_CONNECTIONS);
                return format!(
                    "{COMMON_SETTINGS}{lane}[rails.{name}]\nkind = \"http\"\nurl = \"http://{}/v1/payments\"\n\
                     idle_timeout = \"{IDLE_TIMEOUT}\"\nidle_connections = {connections}\nallow_http = true\n\
                     allow_private = [\"127.0.0.0/8\"]\n",
                    bank.address()
                );
            }
            Server::Broker { kind, broker } => {
                broker_sink::settings(*kind, broker.port(), &password_file(&self.folder))
            }
            #[cfg(feature = "kafka")]
            Server::Kafka(cluster) => cluster.sink_settings(),
        };
        if plan.ordered {
            lane.push_str("order = \"aggregate\"\n");
        }
        format!(
            "{COMMON_SETTINGS}{lane}source = \"//symphony-bench\"\n[[event.routes]]\naggregate_type = \"{name}\"\n\
             event_type = \"*\"\nsink = \"{SINK}\"\ndestination = \"{ROUTE_DESTINATION}\"\n[sinks.{SINK}]\n{sink}"
        )
    }

    /// How many rows it has received, by its own count: the bank's ledger, or the length of the stream or queue.
    pub(super) async fn received(&self) -> Result<u64, Failure> {
        match &self.server {
            Server::Bank(bank) => Ok(u64::try_from(executions(bank)?.len()).unwrap_or(u64::MAX)),
            Server::Broker { kind, broker } => {
                let cannot = format!("cannot count the events in {}", broker_sink::kind_name(*kind));
                broker.count(ROUTE_DESTINATION).await.map_err(|error| Failure::because(cannot, error))
            }
            #[cfg(feature = "kafka")]
            Server::Kafka(cluster) => cluster.received().await,
        }
    }

    /// The first row that arrived after a later one of its participant or aggregate. RabbitMQ and Kafka are not read.
    pub(super) async fn first_out_of_order(&self) -> Result<Option<String>, Failure> {
        let rows: Vec<(String, i64)> = match &self.server {
            Server::Bank(bank) => {
                executions(bank)?.into_iter().map(|row| (row.participant_id, row.sequence_id)).collect()
            }
            Server::Broker { kind: kind @ (Kind::Nats | Kind::Redis), broker } => {
                let cannot = format!("cannot read the events in {}", broker_sink::kind_name(*kind));
                let events = broker.read(ROUTE_DESTINATION).await;
                let events = events.map_err(|error| Failure::because(cannot, error))?;
                events.into_iter().map(|event| (event.key, event.id)).collect()
            }
            Server::Broker { kind: Kind::RabbitMq, .. } => return Ok(None),
            #[cfg(feature = "kafka")]
            Server::Kafka(_) => return Ok(None),
        };
        Ok(first_out_of_order(rows))
    }

    /// Its CPU time so far. None for a server that the benchmark has not started.
    pub(super) fn cpu_seconds(&self) -> Option<f64> {
        let process = match &self.server {
            Server::Bank(bank) => bank.id(),
            Server::Broker { broker, .. } => broker.id(),
            #[cfg(feature = "kafka")]
            Server::Kafka(cluster) => cluster.process_id()?,
        };
        resource_usage::cpu_seconds(process.unsigned_abs())
    }
}

async fn start_bank(folder: &TempDir) -> Result<BankProcess, Failure> {
    let program = std::env::current_exe()
        .map_err(|error| Failure::because("cannot find the path of this program", error))?;
    BankProcess::start(&program, folder.path(), "none", 0).await
}

async fn start_broker(to: DestinationKind, kind: Kind, folder: &TempDir) -> Result<Server, Unavailable> {
    let name = broker_sink::kind_name(kind);
    let password = Uuid::new_v4().to_string();
    fs::write(password_file(folder), &password)
        .map_err(|error| Unavailable::new(to, format!("cannot write its password: {error}")))?;
    let broker = match Broker::start(kind, &BrokerAuth { password, tls: None }).await {
        Ok(broker) => broker,
        Err(brokers::Error::Find(error)) => {
            return Err(Unavailable::new(to, format!("{name} is not installed: {error}"))
                .hint("leave it out of --to, or install it with: scripts/setup --brokers"));
        }
        Err(error) => return Err(Unavailable::new(to, format!("{name} does not start: {error}"))),
    };
    let prepared = broker.prepare(ROUTE_DESTINATION).await;
    prepared
        .map_err(|error| Unavailable::new(to, format!("{name} does not create {ROUTE_DESTINATION}: {error}")))?;
    Ok(Server::Broker { kind, broker: Box::new(broker) })
}

fn executions(bank: &BankProcess) -> Result<Vec<Execution>, Failure> {
    let executions = reconciliation::executions(&bank.ledger()?);
    executions.map_err(|error| Failure::because("cannot read the bank's ledger", error))
}

/// The first of these keys and numbers whose number is not above the last one of its key.
fn first_out_of_order(rows: Vec<(String, i64)>) -> Option<String> {
    let mut last = HashMap::new();
    for (key, number) in rows {
        if last.get(&key).is_some_and(|last| *last >= number) {
            return Some(format!("{number} of {key}"));
        }
        last.insert(key, number);
    }
    None
}

fn password_file(folder: &TempDir) -> PathBuf {
    folder.path().join("broker-password")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_checked_within_a_key() {
        let rows = |rows: &[(&str, i64)]| rows.iter().map(|(key, number)| ((*key).to_owned(), *number)).collect();
        assert_eq!(first_out_of_order(rows(&[("a", 2), ("b", 1), ("a", 3), ("b", 4)])), None);
        assert_eq!(first_out_of_order(rows(&[("a", 2), ("b", 5), ("a", 1)])), Some("1 of a".to_owned()));
        assert_eq!(first_out_of_order(rows(&[("a", 2), ("a", 2)])), Some("2 of a".to_owned()));
    }
}
