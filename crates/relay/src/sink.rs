//! The interface of an event sink: implement [`Sink`] to publish events to a broker of your choice.
//!
//! A sink knows its protocol. It knows nothing about claims, retries or order. It must report an event as
//! [`Published::Confirmed`] only after the broker has confirmed it. Delivery is at-least-once: a repeat has the same
//! [`Message::id`], by which the broker or the consumer can drop it.
//!
//! # Example
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Mutex, PoisonError};
//!
//! use symphony_relay::rail::BoxFuture;
//! use symphony_relay::sink::{Message, Published, Sink};
//!
//! /// A broker in memory, which drops repeats by their id.
//! #[derive(Default)]
//! struct MemorySink {
//!     events: Mutex<BTreeMap<String, String>>,
//! }
//!
//! impl Sink for MemorySink {
//!     fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
//!         Box::pin(async move {
//!             if message.data.len() > 65_536 {
//!                 return Published::Refused("the event is larger than 64 KiB".to_owned());
//!             }
//!             let mut events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
//!             let known = events.insert(message.id.clone(), message.data.clone());
//!             Published::Confirmed { repeat: known.is_some() }
//!         })
//!     }
//!
//!     fn close(&self) -> BoxFuture<'_, ()> {
//!         Box::pin(async {})
//!     }
//! }
//! ```

use crate::rail::BoxFuture;

/// An event to publish, with the attributes of CloudEvents 1.0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id of the event: unique within its source, and the same on every attempt. Consumers deduplicate by it.
    pub id: String,
    /// The system that published the event: a URI reference, from the settings.
    pub source: String,
    /// The type of the event.
    pub event_type: String,
    /// The type of its aggregate.
    pub aggregate_type: String,
    /// The id of its aggregate.
    pub aggregate_id: String,
    /// The subject, topic, routing key, stream or path, from the route.
    pub destination: String,
    /// The data of the event: JSON text.
    pub data: String,
}

impl Message {
    /// The partition or ordering key: events with the same key must stay in order.
    #[must_use]
    pub fn ordering_key(&self) -> String {
        format!("{}/{}", self.aggregate_type, self.aggregate_id)
    }
}

/// The result of publishing an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    /// The broker has stored the event, as durably as it promises.
    Confirmed {
        /// Whether the broker had it already and dropped this repeat.
        repeat: bool,
    },
    /// The broker refused this event: too large, no route, not allowed. A retry is refused too until the configuration
    /// changes. The text is for operators and contains no data of the event.
    Refused(String),
    /// The broker is not reachable, did not confirm in time, or failed. It may have stored the event. Counts against
    /// the circuit breaker; the text is for operators.
    Failed(String),
}

/// An event sink: a destination of events, such as a broker. See the [module](self) for an example.
pub trait Sink: Send + Sync + 'static {
    /// Publishes an event and waits for the confirmation. The sink enforces its own timeout.
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published>;

    /// Closes the connections.
    fn close(&self) -> BoxFuture<'_, ()>;
}
