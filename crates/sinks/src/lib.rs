//! The ways out: what carries a payment to a bank, an event to a broker and metadata to a second store, and what is checked
//! before it leaves.
//!
//! A rail, a sink or a store here knows a wire format and a client library. It knows no lease, no retry and no outbox: those
//! are the engine's, which sees a [`Rail`](symphony_relay::rail::Rail), a [`Sink`](symphony_relay::sink::Sink) or a
//! [`Store`](symphony_relay::store::Store) and nothing else.
//!
//! # Layout
//!
//! - [`registry`]: the rail, sink or store of a given kind, from its settings
//! - [`config`]: what can be wrong with settings
//! - [`money`]: what a payload must hold before it may leave
//! - `http`: signed HTTP(S) requests, for payments, events and metadata (feature `http`, on by default)
//! - `event`: brokers (features `nats`, `redis` and `rabbitmq`, on by default; `kafka`)
//! - `metadata`: second stores (features `postgres` and `redis`, on by default)
//! - `traces`: spans, drawn and carried to a collector (feature `otlp`, on by default)
//! - `courier`: connections that are kept, lost and made again, and the time that carrying may take
//! - `broker`: the settings that every broker has; `redis`: a connection to that one; `secret`, `tls`

#![cfg_attr(
    not(all(
        feature = "http",
        feature = "nats",
        feature = "otlp",
        feature = "postgres",
        feature = "rabbitmq",
        feature = "redis"
    )),
    allow(dead_code, unused_imports, reason = "a build with fewer ways out uses less of what they share")
)]

#[cfg(feature = "broker")]
mod broker;
#[cfg(test)]
mod cases;
pub mod config;
#[cfg(feature = "net")]
mod courier;
#[cfg(feature = "net")]
mod event;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "broker")]
mod metadata;
pub mod money;
#[cfg(feature = "redis")]
mod redis;
pub mod registry;
#[cfg(feature = "net")]
mod secret;
#[cfg(feature = "net")]
mod tls;
#[cfg(feature = "otlp")]
pub mod traces;

pub use config::{ConfigError, without_value};
pub use registry::{rail, sink, store};
