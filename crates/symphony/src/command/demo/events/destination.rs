//! A destination of events: a private broker, or an HTTP receiver where the broker is not installed.

use std::path::Path;
use std::time::Duration;

use symphony_testkit::brokers::{self, Broker, BrokerAuth, Kind};
use symphony_testkit::reconciliation::events::Event;

use super::receiver::Receiver;
use crate::command::broker_sink::{kind_name, settings};
use crate::failure::Failure;

/// How long reading all events may take.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// A destination of events.
pub(super) enum Destination {
    /// A broker that persists confirmed events, also over a kill.
    Broker { kind: Kind, broker: Box<Broker> },
    /// A receiver in this process, and why there is no broker.
    Receiver { receiver: Receiver, why: String },
}

impl Destination {
    /// Starts the broker and creates this subject or stream; without the broker, starts a receiver.
    pub(super) async fn open(kind: Kind, password: &str, destination: &str) -> Result<Self, Failure> {
        let auth = BrokerAuth { password: password.to_owned(), tls: None };
        let why = match Broker::start(kind, &auth).await {
            Ok(broker) => {
                let prepared = broker.prepare(destination).await;
                prepared
                    .map_err(|error| Failure::because(format!("cannot prepare {}", kind_name(kind)), error))?;
                return Ok(Self::Broker { kind, broker: Box::new(broker) });
            }
            Err(brokers::Error::Find(error)) => format!("{} is not installed: {error}", kind_name(kind)),
            Err(error) => format!("{} does not start: {error}", kind_name(kind)),
        };
        Ok(Self::Receiver { receiver: Receiver::open().await?, why })
    }

    pub(super) fn name(&self) -> String {
        match self {
            Self::Broker { kind, broker } => format!("{} on port {}", kind_name(*kind), broker.port()),
            Self::Receiver { receiver, .. } => format!("an HTTP receiver on port {}", receiver.port()),
        }
    }

    /// Why a receiver stands in for the broker.
    pub(super) fn fallback_reason(&self) -> Option<&str> {
        match self {
            Self::Broker { .. } => None,
            Self::Receiver { why, .. } => Some(why),
        }
    }

    /// The settings of the sink for this destination.
    pub(super) fn section(&self, password_file: &Path) -> String {
        match self {
            Self::Broker { kind, broker } => {
                let mut settings = settings(*kind, broker.port(), password_file);
                if *kind == Kind::Redis {
                    settings.push_str("repeats_for = \"24h\"\n");
                }
                settings
            }
            Self::Receiver { receiver, .. } => format!(
                "kind = \"http\"\nurl = \"http://127.0.0.1:{}/{{destination}}\"\nallow_plain = true\n\
                 allow_private = [\"127.0.0.0/8\"]\n",
                receiver.port()
            ),
        }
    }

    /// Kills the broker, or takes the receiver down.
    pub(super) async fn kill(&mut self) -> Result<(), Failure> {
        match self {
            Self::Broker { broker, .. } => {
                broker.kill9().await.map_err(|error| Failure::because("cannot kill a broker", error))
            }
            Self::Receiver { receiver, .. } => {
                receiver.set_down(true);
                Ok(())
            }
        }
    }

    /// Restarts it with its data.
    pub(super) async fn restart(&mut self) -> Result<(), Failure> {
        match self {
            Self::Broker { broker, .. } => {
                broker.restart().await.map_err(|error| Failure::because("a broker did not restart", error))
            }
            Self::Receiver { receiver, .. } => {
                receiver.set_down(false);
                Ok(())
            }
        }
    }

    /// All events that have arrived, in order, read by a client that is not the sink.
    pub(super) async fn read(&self, destination: &str) -> Result<Vec<Event>, Failure> {
        match self {
            Self::Receiver { receiver, .. } => Ok(receiver.events()),
            Self::Broker { kind, broker } => {
                let name = kind_name(*kind);
                let read = tokio::time::timeout(READ_TIMEOUT, broker.read(destination)).await;
                let read = read.map_err(|_| Failure::new(format!("{name} did not return its events in time")))?;
                read.map_err(|error| Failure::because(format!("cannot read the events in {name}"), error))
            }
        }
    }
}
