//! Reads the messages of a broker independently of the sink: over a plain socket, without the sink's client library.

mod nats;
mod rabbitmq;
mod redis;

use std::collections::BTreeMap;
use std::io;

use super::{Broker, Kind};
use crate::reconciliation::events::Event;

/// Redis hashes by key: the value of each field.
pub type Hashes = BTreeMap<String, BTreeMap<String, String>>;

/// Limits the length of one reply.
const MAX_REPLY_BYTES: usize = 64 * 1024 * 1024;

/// Why the messages could not be read.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection failed.
    #[error("the connection to the broker failed")]
    Socket(#[from] io::Error),
    /// The broker sent an unexpected reply.
    #[error("unexpected reply from the broker: {0}")]
    Reply(String),
    /// The operation is not implemented for this kind of broker.
    #[error("this operation is not implemented for {0:?}")]
    Kind(Kind),
}

impl Broker {
    /// Creates the stream for this destination, if the broker does not create it with the first message.
    ///
    /// # Errors
    /// When the broker does not reply, or refuses.
    pub async fn prepare(&self, destination: &str) -> Result<(), ReadError> {
        match self.kind {
            Kind::Nats => nats::prepare(self.port, &self.password, destination).await,
            // The first event creates the stream.
            Kind::Redis => Ok(()),
            Kind::RabbitMq => rabbitmq::declare(self.port, &self.password, destination).await.map(drop),
        }
    }

    /// How many events this destination holds, after [`Broker::prepare`].
    ///
    /// # Errors
    /// When the broker does not answer, or refuses.
    pub async fn count(&self, destination: &str) -> Result<u64, ReadError> {
        match self.kind {
            Kind::Nats => nats::count(self.port, &self.password).await,
            Kind::Redis => redis::count(self.port, &self.password, destination).await,
            Kind::RabbitMq => rabbitmq::declare(self.port, &self.password, destination).await,
        }
    }

    /// All events at this destination, in the order in which a consumer receives them.
    ///
    /// # Errors
    /// When the broker does not reply, or a message is not an event.
    pub async fn read(&self, destination: &str) -> Result<Vec<Event>, ReadError> {
        match self.kind {
            Kind::Nats => nats::read(self.port, &self.password).await,
            Kind::Redis => redis::read(self.port, &self.password, destination).await,
            Kind::RabbitMq => Err(ReadError::Kind(self.kind)),
        }
    }

    /// All Redis hashes whose keys have this prefix.
    ///
    /// # Errors
    /// When the broker does not reply, or is not Redis.
    pub async fn hashes(&self, prefix: &str) -> Result<Hashes, ReadError> {
        match self.kind {
            Kind::Redis => redis::hashes(self.port, &self.password, prefix).await,
            Kind::Nats | Kind::RabbitMq => Err(ReadError::Kind(self.kind)),
        }
    }
}

/// Builds an event from the attributes in the message.
fn event(id: &str, key: &str) -> Result<Event, ReadError> {
    let id = id.parse().map_err(|_| ReadError::Reply(format!("id {id:?}")))?;
    Ok(Event { id, key: key.to_owned() })
}

/// Parses a length, and checks it against the limit.
fn length(text: &str) -> Result<usize, ReadError> {
    let length = text.parse().ok().filter(|length| *length <= MAX_REPLY_BYTES);
    length.ok_or_else(|| ReadError::Reply(format!("length {text:?}")))
}
