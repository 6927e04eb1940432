//! The mock cluster of librdkafka, read by a consumer.
//!
//! It implements Kafka's protocol on real sockets and is not Kafka: it keeps data in memory and has neither TLS nor
//! passwords.

use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::{Headers, Message as _};
use rdkafka::mocking::MockCluster;
use rdkafka::producer::DefaultProducerContext;
use rdkafka::types::RDKafkaRespErr;
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::certificate_authority::CertificateAuthority;
use crate::fixture::{DESTINATION, ReceivedEvent, SinkFixture};

const PARTITIONS: i32 = 3;
const BROKER: i32 = 1;
const READ_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) struct Kafka(MockCluster<'static, DefaultProducerContext>);

impl SinkFixture for Kafka {
    const DEDUPLICATES: bool = false;
    const REFUSED_DESTINATION: &'static str = "no-such-topic";

    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self> {
        if tls.is_some() {
            return None;
        }
        let cluster = MockCluster::new(1).unwrap();
        cluster.create_topic(DESTINATION, PARTITIONS, 1).unwrap();
        cluster
            .topic_error(Self::REFUSED_DESTINATION, RDKafkaRespErr::RD_KAFKA_RESP_ERR_UNKNOWN_TOPIC_OR_PART)
            .unwrap();
        Some(Self(cluster))
    }

    fn settings(&self) -> String {
        format!("kind = 'kafka'\nbrokers = ['{}']", self.0.bootstrap_servers())
    }

    fn password_setting(&self) -> Option<&'static str> {
        None
    }

    async fn read(&self) -> Vec<ReceivedEvent> {
        let servers = self.0.bootstrap_servers();
        tokio::task::spawn_blocking(move || read(&servers)).await.unwrap()
    }

    async fn kill(&mut self) {
        self.0.broker_down(BROKER).unwrap();
    }

    async fn restart(&mut self) {
        self.0.broker_up(BROKER).unwrap();
    }

    fn pause(&mut self) {
        self.0.broker_round_trip_time(BROKER, Duration::from_secs(3600)).unwrap();
    }

    fn resume(&mut self) {
        self.0.broker_round_trip_time(BROKER, Duration::ZERO).unwrap();
        // Responses that were delayed by an hour stay delayed. A new connection is not.
        self.0.broker_down(BROKER).unwrap();
        self.0.broker_up(BROKER).unwrap();
    }
}

fn read(servers: &str) -> Vec<ReceivedEvent> {
    let consumer: BaseConsumer<DefaultConsumer> = ClientConfig::new()
        .set("bootstrap.servers", servers)
        .set("group.id", "conformance")
        .create_with_context(DefaultConsumer::default())
        .unwrap();
    let mut all = Vec::new();
    for partition in 0..PARTITIONS {
        let (low, high) = consumer.fetch_watermarks(DESTINATION, partition, READ_TIMEOUT).unwrap();
        let mut from = TopicPartitionList::new();
        from.add_partition_offset(DESTINATION, partition, Offset::Offset(low)).unwrap();
        consumer.assign(&from).unwrap();
        for _ in low..high {
            all.push(found(&next(&consumer)));
        }
    }
    all
}

/// The next message: a poll may also return for another event.
fn next(consumer: &BaseConsumer<DefaultConsumer>) -> rdkafka::message::BorrowedMessage<'_> {
    let deadline = Instant::now() + READ_TIMEOUT;
    loop {
        match consumer.poll(Duration::from_millis(100)) {
            Some(message) => return message.unwrap(),
            None => assert!(Instant::now() < deadline, "the consumer does not return a message that is stored"),
        }
    }
}

type DefaultConsumer = rdkafka::consumer::DefaultConsumerContext;

fn found(message: &rdkafka::message::BorrowedMessage<'_>) -> ReceivedEvent {
    let headers = message.headers().unwrap();
    let header = |name: &str| {
        let value = headers.iter().find(|header| header.key == name).and_then(|header| header.value).unwrap();
        String::from_utf8(value.to_vec()).unwrap()
    };
    let text = |bytes: Option<&[u8]>| String::from_utf8(bytes.unwrap().to_vec()).unwrap();
    assert_eq!((header("ce_specversion"), header("content-type")), ("1.0".into(), "application/json".into()));
    assert_eq!(header("ce_partitionkey"), text(message.key()));
    ReceivedEvent {
        id: header("ce_id"),
        source: header("ce_source"),
        event_type: header("ce_type"),
        subject: header("ce_subject"),
        key: text(message.key()),
        data: text(message.payload()),
        traceparent: headers.iter().find(|header| header.key == "traceparent").map(|header| text(header.value)),
    }
}
