//! Event sinks for brokers: each publishes an event to one kind of broker and waits for its confirmation.
//!
//! A sink here implements [`WireProtocol`](crate::connection_manager::WireProtocol), not
//! [`Sink`](symphony_relay::sink::Sink): the `ConnectionManager` around it is the sink. It knows nothing of claims,
//! retries or routes. [`registry`](crate::registry) says how to add one.
//!
//! # Layout
//!
//! - `cloudevent`: the attributes of an event by their names in CloudEvents 1.0
//! - `nats`, `redis`, `rabbitmq`, `kafka`: one file per broker, each behind the feature of its name
//!
//! The CloudEvents sink over HTTP is in `http::cloudevents`, since it shares the HTTP client.

pub(crate) mod cloudevent;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
#[cfg(feature = "redis")]
pub(crate) mod redis;
