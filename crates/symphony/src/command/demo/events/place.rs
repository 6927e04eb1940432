//! Where events go: a broker of its own, or a receiver over HTTP where there is no broker to be had.

use std::path::Path;
use std::time::Duration;

use symphony_proof::kit::audit::events::Event;
use symphony_proof::kit::brokers::{self, Broker, Kind, Terms, USER};

use super::receiver::Receiver;
use crate::failure::Failure;

/// How long reading everything may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// One of the places.
pub(super) enum Place {
    /// A broker that keeps what it has confirmed, over a kill too.
    Broker { kind: Kind, broker: Box<Broker> },
    /// This program itself, with the reason.
    Receiver { receiver: Receiver, why: String },
}

impl Place {
    /// Starts the broker with a place for this destination, or else a receiver.
    pub(super) async fn open(kind: Kind, password: &str, destination: &str) -> Result<Self, Failure> {
        let terms = Terms { password: password.to_owned(), tls: None };
        let why = match Broker::start(kind, &terms).await {
            Ok(broker) => {
                let prepared = broker.prepare(destination).await;
                prepared.map_err(|error| Failure::because(format!("{} is of no use", called(kind)), error))?;
                return Ok(Self::Broker { kind, broker: Box::new(broker) });
            }
            Err(brokers::Error::Find(error)) => format!("there is no {} here: {error}", called(kind)),
            Err(error) => format!("{} is here and does not start: {error}", called(kind)),
        };
        Ok(Self::Receiver { receiver: Receiver::open().await?, why })
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Broker { kind, broker } => format!("{} on port {}", called(*kind), broker.port()),
            Self::Receiver { receiver, .. } => format!("a receiver over HTTP on port {}", receiver.port()),
        }
    }

    /// Why it is not the broker that it should be.
    pub(super) fn instead_of(&self) -> Option<&str> {
        match self {
            Self::Broker { .. } => None,
            Self::Receiver { why, .. } => Some(why),
        }
    }

    /// The section of the sink that leads here.
    pub(super) fn section(&self, password_file: &Path) -> String {
        match self {
            Self::Broker { kind, broker } => {
                let (kind, more) = match kind {
                    Kind::Nats => ("nats", ""),
                    Kind::Redis => ("redis", "repeats_for = \"24h\"\n"),
                    Kind::RabbitMq => ("rabbitmq", ""),
                };
                format!(
                    "kind = \"{kind}\"\nurl = \"{kind}://127.0.0.1:{}\"\nuser = \"{USER}\"\npassword_file = {password_file:?}\n\
                     allow_plain = true\n{more}",
                    broker.port()
                )
            }
            Self::Receiver { receiver, .. } => format!(
                "kind = \"http\"\nurl = \"http://127.0.0.1:{}/{{destination}}\"\nallow_plain = true\n\
                 allow_private = [\"127.0.0.0/8\"]\n",
                receiver.port()
            ),
        }
    }

    /// Kills it in the middle of whatever it does.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        match self {
            Self::Broker { broker, .. } => {
                broker.kill9().await.map_err(|error| Failure::because("a broker could not be killed", error))
            }
            Self::Receiver { receiver, .. } => {
                receiver.shut(true);
                Ok(())
            }
        }
    }

    /// Starts it again on what it had.
    pub(super) async fn revive(&mut self) -> Result<(), Failure> {
        match self {
            Self::Broker { broker, .. } => {
                broker.restart().await.map_err(|error| Failure::because("a broker did not start again", error))
            }
            Self::Receiver { receiver, .. } => {
                receiver.shut(false);
                Ok(())
            }
        }
    }

    /// All that has arrived, in the order in which it is found by somebody who is not the sink.
    pub(super) async fn read(&self, destination: &str) -> Result<Vec<Event>, Failure> {
        match self {
            Self::Receiver { receiver, .. } => Ok(receiver.taken()),
            Self::Broker { kind, broker } => {
                let name = called(*kind);
                let read = tokio::time::timeout(PATIENCE, broker.read(destination)).await;
                let read = read.map_err(|_| Failure::no(format!("{name} does not say what has arrived")))?;
                read.map_err(|error| Failure::because(format!("{name} cannot be read"), error))
            }
        }
    }
}

fn called(kind: Kind) -> &'static str {
    match kind {
        Kind::Nats => "NATS",
        Kind::Redis => "Redis",
        Kind::RabbitMq => "RabbitMQ",
    }
}
