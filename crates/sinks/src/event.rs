//! The ways out for events: what carries an event to a broker, and what it looks like there.
//!
//! Each sink knows one protocol. None knows claims, retries or routes: those are the engine's, which sees a
//! [`Sink`](symphony_relay::sink::Sink) and nothing else.
//!
//! # Layout
//!
//! - `cloudevent`: the attributes of an event by the names that CloudEvents 1.0 gives them
//! - `nats`, `redis`, `rabbitmq`, `kafka`: the protocols, each behind a feature of its name
//!
//! CloudEvents over HTTP live with the HTTP rail, whose line they share.

pub(crate) mod cloudevent;
#[cfg(feature = "kafka")]
pub(crate) mod kafka;
#[cfg(feature = "nats")]
pub(crate) mod nats;
#[cfg(feature = "rabbitmq")]
pub(crate) mod rabbitmq;
#[cfg(feature = "redis")]
pub(crate) mod redis;
