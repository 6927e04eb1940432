//! Reads what a broker holds, independently of the sink: over a plain socket, without the sink's client library.

mod nats;
mod redis;

use std::collections::BTreeMap;
use std::io;

use super::{Broker, Kind};
use crate::reconciliation::events::Event;

/// Hashes of a Redis: by its key, what each field holds.
pub type Hashes = BTreeMap<String, BTreeMap<String, String>>;

/// The longest answer that is read at once.
const LONGEST: usize = 64 * 1024 * 1024;

/// Why nothing was found.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The connection could not be made, or broke.
    #[error("the broker was not reached")]
    Socket(#[from] io::Error),
    /// The broker sent an unexpected answer.
    #[error("unexpected answer of the broker: {0}")]
    Answer(String),
    /// There is no reader for this kind here.
    #[error("there is no reader for {0:?}")]
    Kind(Kind),
}

impl Broker {
    /// Makes a place that keeps what comes to this destination, where there must be one before something comes.
    ///
    /// # Errors
    /// When the broker does not answer, or refuses.
    pub async fn prepare(&self, destination: &str) -> Result<(), ReadError> {
        match self.kind {
            Kind::Nats => nats::prepare(self.port, &self.password, destination).await,
            // The first event makes the stream.
            Kind::Redis => Ok(()),
            Kind::RabbitMq => Err(ReadError::Kind(self.kind)),
        }
    }

    /// All events that have come to this destination, in the order in which a consumer gets them.
    ///
    /// # Errors
    /// When the broker does not answer, or has something that is no event.
    pub async fn read(&self, destination: &str) -> Result<Vec<Event>, ReadError> {
        match self.kind {
            Kind::Nats => nats::read(self.port, &self.password).await,
            Kind::Redis => redis::read(self.port, &self.password, destination).await,
            Kind::RabbitMq => Err(ReadError::Kind(self.kind)),
        }
    }

    /// All hashes of a Redis whose keys begin so.
    ///
    /// # Errors
    /// When the broker does not answer, or is no Redis.
    pub async fn hashes(&self, prefix: &str) -> Result<Hashes, ReadError> {
        match self.kind {
            Kind::Redis => redis::hashes(self.port, &self.password, prefix).await,
            Kind::Nats | Kind::RabbitMq => Err(ReadError::Kind(self.kind)),
        }
    }
}

/// An event by two of its attributes, as the broker has them.
fn event(id: &str, key: &str) -> Result<Event, ReadError> {
    let id = id.parse().map_err(|_| ReadError::Answer(format!("the id {id:?}")))?;
    Ok(Event { id, key: key.to_owned() })
}

/// The length of what follows, if it is one that is read.
fn length(text: &str) -> Result<usize, ReadError> {
    let length = text.parse().ok().filter(|length| *length <= LONGEST);
    length.ok_or_else(|| ReadError::Answer(format!("the length {text:?}")))
}
