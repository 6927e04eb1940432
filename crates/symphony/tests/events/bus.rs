//! A broker of one test: killed, started again, and read by somebody who is not the sink.

use std::path::Path;

use symphony_proof::kit::audit::events::Event;
use symphony_proof::kit::brokers::{Broker, Kind, Terms, USER};

use crate::rabbitmq;

pub(crate) const PASSWORD: &str = "open-sesame-7";
/// Where the events go: a subject, a routing key, a stream.
pub(crate) const DESTINATION: &str = "orders";

/// A broker that keeps what it has confirmed, over kills too.
pub(crate) struct Bus {
    kind: Kind,
    broker: Broker,
}

impl Bus {
    /// Starts it with a place for events.
    pub(crate) async fn start(kind: Kind) -> Self {
        let broker = Broker::start(kind, &Terms { password: PASSWORD.to_owned(), tls: None }).await.unwrap();
        match kind {
            Kind::RabbitMq => rabbitmq::prepare(broker.port()).await,
            Kind::Nats | Kind::Redis => broker.prepare(DESTINATION).await.unwrap(),
        }
        Self { kind, broker }
    }

    /// The section of the sink that leads here.
    pub(crate) fn section(&self, folder: &Path) -> String {
        let (scheme, more) = match self.kind {
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
             password_file = {password:?}\nallow_plain = true\n{more}"
        )
    }

    /// Whether the broker drops repeats itself.
    pub(crate) fn drops_repeats(&self) -> bool {
        self.kind != Kind::RabbitMq
    }

    /// Kills it in the middle of whatever it does.
    pub(crate) async fn kill(&self) {
        self.broker.kill9().await.unwrap();
    }

    /// Starts it again on what it had.
    pub(crate) async fn revive(&mut self) {
        self.broker.restart().await.unwrap();
    }

    /// All that has arrived, in the order in which a consumer gets it.
    pub(crate) async fn read(&self) -> Vec<Event> {
        match self.kind {
            Kind::RabbitMq => rabbitmq::read(self.broker.port()).await,
            Kind::Nats | Kind::Redis => self.broker.read(DESTINATION).await.unwrap(),
        }
    }
}
