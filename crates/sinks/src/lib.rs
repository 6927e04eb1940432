//! The ways out: what carries a payment to a bank and an event to a broker, and what is checked before it leaves.
//!
//! A rail or a sink here knows a wire format and a client library. It knows no lease, no retry and no database: those are
//! the engine's, which sees a [`Rail`](symphony_relay::rail::Rail) or a [`Sink`](symphony_relay::sink::Sink) and nothing
//! else.
//!
//! # Layout
//!
//! - [`registry`]: the rail or sink of a given kind, from its settings
//! - [`config`]: what can be wrong with settings
//! - [`money`]: what a payload must hold before it may leave
//! - [`noop`]: takes everything and sends nothing, for benchmarks
//! - `http`: signed HTTP(S) requests, for payments and for events (feature `http`, on by default)
//! - `event`: brokers (features `nats`, `redis` and `rabbitmq`, on by default; `kafka`)
//! - `secret`, `tls`: what they have in common

#![cfg_attr(
    not(all(feature = "http", feature = "nats", feature = "rabbitmq", feature = "redis")),
    allow(dead_code, unused_imports, reason = "a build with fewer ways out uses less of what they share")
)]

#[cfg(test)]
mod cases;
pub mod config;
#[cfg(feature = "net")]
mod event;
#[cfg(feature = "http")]
pub mod http;
pub mod money;
pub mod noop;
pub mod registry;
#[cfg(feature = "net")]
mod secret;
#[cfg(feature = "net")]
mod tls;

pub use config::ConfigError;
pub use registry::{rail, sink};
