//! Symphony's destinations: payment rails, event sinks for brokers, and stores for metadata.
//!
//! Each knows one wire format and one client library. It knows nothing of leases, retries or outbox rows: the relayer's
//! engine does, and sees only a [`Rail`](symphony_relay::rail::Rail), a [`Sink`](symphony_relay::sink::Sink) or a
//! [`Store`](symphony_relay::store::Store).
//!
//! A sink for a broker does not implement [`Sink`](symphony_relay::sink::Sink) itself. It implements the protocol trait
//! `WireProtocol`, and the `ConnectionManager` around it is the sink. To add a sink, follow the list in [`registry`].
//!
//! # Layout
//!
//! - [`registry`]: builds the rail, sink or store of a kind; how to add one
//! - [`config`]: reads settings, and reports errors by setting
//! - [`money`]: validates the payload of a payment
//! - `http`: the HTTP(S) rail, sink and store (feature `http`, on by default)
//! - `event`: sinks for brokers (features `nats`, `redis` and `rabbitmq`, on by default; `kafka`)
//! - `metadata`: stores (features `postgres` and `redis`, on by default)
//! - `traces`: exports spans to an OpenTelemetry collector (feature `otlp`, on by default)
//! - `connection_manager`: one connection per sink or store; connects, reconnects and waits for confirmation
//! - `broker`, `redis`: what brokers share; `secret`, `tls`, `encoding`, `error_text`: what all destinations share

#![cfg_attr(
    not(all(
        feature = "http",
        feature = "nats",
        feature = "otlp",
        feature = "postgres",
        feature = "rabbitmq",
        feature = "redis"
    )),
    allow(dead_code, unused_imports, reason = "a build with fewer destinations uses less of the shared code")
)]

#[cfg(feature = "broker")]
mod broker;
pub mod config;
#[cfg(feature = "net")]
mod connection_manager;
#[cfg(feature = "net")]
mod encoding;
#[cfg(feature = "net")]
mod error_text;
#[cfg(feature = "net")]
mod event;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "broker")]
mod metadata;
pub mod money;
#[cfg(test)]
mod proptest_config;
#[cfg(feature = "redis")]
mod redis;
pub mod registry;
#[cfg(feature = "net")]
mod secret;
#[cfg(feature = "net")]
mod tls;
#[cfg(feature = "otlp")]
pub mod traces;

pub use config::{ConfigError, parse_duration, without_value};
#[cfg(feature = "http")]
pub use http::reload_secrets;
pub use registry::{rail, sink, store};
