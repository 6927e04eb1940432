//! A real broker for one test: the test kills it, restarts it, and reads it with a consumer that is not the sink.

use std::path::Path;

use symphony_testkit::brokers::{Broker, BrokerAuth, Kind, USER};
use symphony_testkit::reconciliation::events::Event;

use crate::rabbitmq;

pub(crate) const PASSWORD: &str = "open-sesame-7";
/// The destination of all events: a subject, a routing key or a stream.
pub(crate) const DESTINATION: &str = "orders";

/// A broker that keeps confirmed events when it is killed.
pub(crate) struct TestBroker {
    kind: Kind,
    broker: Broker,
}

impl TestBroker {
    /// Starts it and creates the destination.
    pub(crate) async fn start(kind: Kind) -> Self {
        let broker = Broker::start(kind, &BrokerAuth { password: PASSWORD.to_owned(), tls: None }).await.unwrap();
        match kind {
            Kind::RabbitMq => rabbitmq::prepare(broker.port()).await,
            Kind::Nats | Kind::Redis => broker.prepare(DESTINATION).await.unwrap(),
        }
        Self { kind, broker }
    }

    /// The section of the sink that publishes to this broker.
    pub(crate) fn section(&self, folder: &Path) -> String {
        let (scheme, extra) = match self.kind {
            Kind::Nats => ("nats", ""),
            Kind::Redis => ("redis", "repeats_for = '24h'\n"),
            Kind::RabbitMq => ("amqp", "exchange = 'events'\n"),
        };
        let kind = match self.kind {
            Kind::Nats => "nats",
            Kind::Redis => "redis",
            Kind::RabbitMq => "rabbitmq",
        };
        let (port, password) = (self.broker.port(), folder.join("password"));
        std::fs::write(&password, PASSWORD).unwrap();
        format!(
            "kind = '{kind}'\nurl = '{scheme}://127.0.0.1:{port}'\nuser = '{USER}'\n\
             password_file = {password:?}\nallow_plain = true\n{extra}"
        )
    }

    /// Whether the broker deduplicates.
    pub(crate) fn deduplicates(&self) -> bool {
        self.kind != Kind::RabbitMq
    }

    /// Kills it with SIGKILL.
    pub(crate) async fn kill(&self) {
        self.broker.kill9().await.unwrap();
    }

    /// Starts it again on the same data.
    pub(crate) async fn restart(&mut self) {
        self.broker.restart().await.unwrap();
    }

    /// All events, in the order in which a consumer receives them.
    pub(crate) async fn read(&self) -> Vec<Event> {
        match self.kind {
            Kind::RabbitMq => rabbitmq::read(self.broker.port()).await,
            Kind::Nats | Kind::Redis => self.broker.read(DESTINATION).await.unwrap(),
        }
    }
}
