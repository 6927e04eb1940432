//! A RabbitMQ server, read by another connection that requeues everything.

use lapin::options::{BasicGetOptions, ExchangeDeclareOptions, QueueBindOptions, QueueDeclareOptions};
use lapin::tcp::OwnedTLSConfig;
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Connection, ConnectionProperties, ExchangeKind};
use symphony_testkit::brokers::{Broker, Kind, USER};

use crate::certificate_authority::CertificateAuthority;
use crate::fixture::{DESTINATION, PASSWORD, ReceivedEvent, SinkFixture, broker};

pub(crate) struct RabbitMq {
    broker: Broker,
    ca: Option<String>,
}

impl RabbitMq {
    async fn connect(&self) -> Connection {
        let scheme = if self.ca.is_some() { "amqps" } else { "amqp" };
        let uri = format!("{scheme}://{USER}:{PASSWORD}@localhost:{}/%2f", self.broker.port());
        let tls = OwnedTLSConfig { identity: None, cert_chain: self.ca.clone() };
        let runtime = lapin::runtime::default_runtime().unwrap();
        Connection::connect_with_config(&uri, ConnectionProperties::default(), tls, runtime).await.unwrap()
    }
}

impl SinkFixture for RabbitMq {
    const DEDUPLICATES: bool = false;
    const REFUSED_DESTINATION: &'static str = "no-queue-here";

    async fn start(tls: Option<&CertificateAuthority>) -> Option<Self> {
        let fixture = Self { broker: broker(Kind::RabbitMq, tls).await, ca: tls.map(CertificateAuthority::pem) };
        let connection = fixture.connect().await;
        let channel = connection.create_channel().await.unwrap();
        let durable = ExchangeDeclareOptions { durable: true, ..Default::default() };
        let none = FieldTable::default;
        channel.exchange_declare("events".into(), ExchangeKind::Direct, durable, none()).await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..Default::default() };
        channel.queue_declare("conformance".into(), durable, none()).await.unwrap();
        let bind = QueueBindOptions::default();
        channel.queue_bind("conformance".into(), "events".into(), DESTINATION.into(), bind, none()).await.unwrap();
        connection.close(200, "".into()).await.unwrap();
        Some(fixture)
    }

    fn settings(&self) -> String {
        let scheme = if self.ca.is_some() { "amqps" } else { "amqp" };
        let port = self.broker.port();
        format!("kind = 'rabbitmq'\nurl = '{scheme}://localhost:{port}'\nuser = '{USER}'\nexchange = 'events'")
    }

    fn password_setting(&self) -> Option<&'static str> {
        Some("password_file")
    }

    async fn read(&self) -> Vec<ReceivedEvent> {
        let connection = self.connect().await;
        let channel = connection.create_channel().await.unwrap();
        let mut all = Vec::new();
        while let Some(message) =
            channel.basic_get("conformance".into(), BasicGetOptions::default()).await.unwrap()
        {
            all.push(found(&message.properties, &message.data));
        }
        connection.close(200, "".into()).await.unwrap();
        all
    }

    async fn kill(&mut self) {
        self.broker.kill9().await.unwrap();
    }

    async fn restart(&mut self) {
        self.broker.restart().await.unwrap();
    }

    fn pause(&mut self) {
        self.broker.pause();
    }

    fn resume(&mut self) {
        self.broker.resume();
    }
}

fn found(properties: &BasicProperties, data: &[u8]) -> ReceivedEvent {
    let headers = properties.headers().as_ref().unwrap().inner();
    let header = |name: &str| match headers.get(format!("cloudEvents:{name}").as_str()) {
        Some(AMQPValue::LongString(text)) => String::from_utf8(text.as_bytes().to_vec()).unwrap(),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(*properties.delivery_mode(), Some(2), "not persistent");
    assert_eq!(properties.message_id().as_ref().map(|id| id.as_str().to_owned()), Some(header("id")));
    assert_eq!(header("specversion"), "1.0");
    ReceivedEvent {
        id: header("id"),
        source: header("source"),
        event_type: header("type"),
        subject: header("subject"),
        key: header("partitionkey"),
        data: String::from_utf8(data.to_vec()).unwrap(),
        traceparent: headers.get("traceparent").map(|value| match value {
            AMQPValue::LongString(text) => String::from_utf8(text.as_bytes().to_vec()).unwrap(),
            other => panic!("{other:?}"),
        }),
    }
}

/// lapin reports a missing exchange in another way than a missing queue.
#[tokio::test]
async fn a_missing_exchange_is_a_refusal_and_the_sink_stays_usable() {
    let fixture = RabbitMq::start(None).await.unwrap();
    let files = crate::fixture::Files::new();
    let password = files.write("password", PASSWORD);
    let toml = fixture.settings().replace("'events'", "'not-there'");
    let toml = format!("{toml}\nallow_plain = true\ntimeout = '60s'\npassword_file = {password:?}");
    let sink = symphony_sinks::sink("orders", toml.parse().unwrap()).unwrap();
    for _ in 0..2 {
        let outcome = sink.publish(&crate::fixture::event("1", "1")).await;
        let symphony_relay::sink::Published::Refused(why) = outcome else { panic!("{outcome:?}") };
        assert!(why.contains("the exchange does not exist"), "{why}");
    }
}
