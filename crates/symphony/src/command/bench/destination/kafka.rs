//! A Kafka cluster that `--kafka-brokers` names, or the mock cluster of librdkafka as a separate process.
//!
//! The mock cluster implements Kafka's protocol on real sockets and is not Kafka: it keeps its data in memory.

use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::error::KafkaError;
use rdkafka::mocking::MockCluster;
use symphony_testkit::process::{Launch, Program};

use super::ROUTE_DESTINATION;
use crate::failure::{ExitStatus, Failure};
use crate::output;
use crate::shutdown_signals::ShutdownSignals;

/// The topic's partitions in the mock cluster.
const PARTITIONS: i32 = 3;
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a broker may take to answer.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// A cluster that is reachable.
pub(super) struct Cluster {
    brokers: Vec<String>,
    /// The process of the mock cluster.
    mock: Option<Program>,
}

impl Cluster {
    /// Uses the cluster of these brokers, or starts a mock cluster if there are none.
    pub(super) async fn open(brokers: &[String]) -> Result<Self, Failure> {
        let cluster = if brokers.is_empty() {
            let (brokers, mock) = start_mock().await?;
            Self { brokers, mock: Some(mock) }
        } else {
            Self { brokers: brokers.to_vec(), mock: None }
        };
        cluster.received().await?;
        Ok(cluster)
    }

    pub(super) fn name(&self) -> &'static str {
        if self.mock.is_some() { "the mock cluster of librdkafka" } else { "Kafka" }
    }

    /// The process of the mock cluster.
    pub(super) fn process_id(&self) -> Option<i32> {
        self.mock.as_ref().map(Program::id)
    }

    pub(super) fn sink_settings(&self) -> String {
        format!("kind = \"kafka\"\nbrokers = {:?}\nallow_plain = true\n", self.brokers)
    }

    /// The records that were ever appended to the topic: the sum of its partitions' high watermarks.
    pub(super) async fn received(&self) -> Result<u64, Failure> {
        let brokers = self.brokers.join(",");
        let counted = tokio::task::spawn_blocking(move || high_watermarks(&brokers)).await;
        let counted = counted.map_err(|error| Failure::because("the count of Kafka's records panicked", error))?;
        let count = counted.map_err(|error| {
            Failure::because(
                format!("cannot read the topic {ROUTE_DESTINATION} of {}", self.brokers.join(",")),
                error,
            )
            .hint("check the address, and create the topic symphony-bench with some partitions")
        })?;
        u64::try_from(count).map_err(|error| Failure::because("Kafka returned a negative offset", error))
    }
}

fn high_watermarks(brokers: &str) -> Result<i64, KafkaError> {
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", brokers)
        .set("group.id", ROUTE_DESTINATION)
        .set("allow.auto.create.topics", "false")
        .set("log_level", "0")
        .create()?;
    let metadata = consumer.fetch_metadata(Some(ROUTE_DESTINATION), READ_TIMEOUT)?;
    let mut sum = 0;
    for topic in metadata.topics() {
        if let Some(error) = topic.error() {
            return Err(KafkaError::MetadataFetch(error.into()));
        }
        for partition in topic.partitions() {
            sum += consumer.fetch_watermarks(ROUTE_DESTINATION, partition.id(), READ_TIMEOUT)?.1;
        }
    }
    Ok(sum)
}

/// Starts this program as a mock cluster. In its own process, its CPU time is its own.
async fn start_mock() -> Result<(Vec<String>, Program), Failure> {
    let did_not_start = |error| Failure::because("the mock cluster of librdkafka did not start", error);
    let program = std::env::current_exe()
        .map_err(|error| Failure::because("cannot find the path of this program", error))?;
    let mock = Launch::new(program).args(["bench", "kafka-mock"]).start().map_err(did_not_start)?;
    let is_address = |line: &str| line.contains(':') && !line.contains(' ');
    let line = mock.wait_for_line(is_address, START_TIMEOUT).await.map_err(did_not_start)?;
    Ok((line.trim().split(',').map(str::to_owned).collect(), mock))
}

/// Runs the mock cluster until a signal, and prints its brokers on one line.
pub(in super::super) async fn serve_mock() -> Result<ExitStatus, Failure> {
    let mut signals = ShutdownSignals::listen()?;
    let cannot = |error| Failure::because("cannot start the mock cluster of librdkafka", error);
    let cluster = MockCluster::new(1).map_err(cannot)?;
    cluster.create_topic(ROUTE_DESTINATION, PARTITIONS, 1).map_err(cannot)?;
    output::print_line(&cluster.bootstrap_servers())?;
    signals.recv().await;
    Ok(ExitStatus::Success)
}
