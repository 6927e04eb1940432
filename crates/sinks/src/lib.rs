//! The ways out: what carries a payment to a bank, and what is checked before it leaves.
//!
//! A rail here knows a wire format and a client library. It knows no lease, no retry and no database: those are the
//! engine's, which sees a [`Rail`](symphony_relay::rail::Rail) and nothing else.
//!
//! # Layout
//!
//! - [`registry`]: the rail of a given kind, from its settings
//! - [`config`]: what can be wrong with settings
//! - [`money`]: what a payload must hold before it may leave
//! - [`noop`]: takes everything and sends nothing, for benchmarks
//! - `http`: signed HTTP(S) requests (feature `http`, on by default)

#[cfg(test)]
mod cases;
pub mod config;
#[cfg(feature = "http")]
pub mod http;
pub mod money;
pub mod noop;
pub mod registry;
#[cfg(feature = "http")]
mod secret;

pub use config::ConfigError;
pub use registry::rail;
