//! The interface of an event sink: publish a message, and report whether the broker has confirmed it.
//!
//! A sink knows its protocol and nothing of claims, retries or order. It must never report an event as published that the
//! broker has not confirmed. A repeat has the same id, so that the broker or the consumer can drop it.

use crate::rail::BoxFuture;

/// An event on its way to a broker, as CloudEvents 1.0 sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id of the event: unique within its source, the same on every attempt, the key by which repeats are dropped.
    pub id: String,
    /// Which system it comes from: a URI reference, from the settings.
    pub source: String,
    /// What kind of event it is.
    pub event_type: String,
    /// The kind of thing that it is about.
    pub aggregate_type: String,
    /// Which of them.
    pub aggregate_id: String,
    /// Where it goes: a subject, topic, routing key, stream or path, from the route.
    pub destination: String,
    /// Its data: JSON, as text.
    pub data: String,
}

impl Message {
    /// What must stay in order: the partition or ordering key of the event.
    #[must_use]
    pub fn ordering_key(&self) -> String {
        format!("{}/{}", self.aggregate_type, self.aggregate_id)
    }
}

/// How publishing ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// The broker has it, durably as far as it promises.
    Confirmed {
        /// It had it already, and dropped this repeat.
        repeat: bool,
    },
    /// The broker refused this message: too large, no route, not allowed. The same will happen again until the
    /// configuration changes. The text is for operators and holds no data of the event.
    Refused(String),
    /// The broker could not be reached, did not confirm in time, or had trouble of its own. It may have the message.
    Failed(String),
}

/// A destination of events, such as a broker.
pub trait Sink: Send + Sync + 'static {
    /// Publishes a message and waits for the broker to confirm it. Bounded in time by the sink's own settings.
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published>;

    /// Closes its connections.
    fn close(&self) -> BoxFuture<'_, ()>;
}
