//! The parts of the daemon `symphony run`: startup checks, the lanes that it serves, metrics and endpoints.
//!
//! The dispatch logic is in [`symphony_relay`]. This module checks that the process may start, gives each engine its
//! lane, its listener and its metrics, and answers HTTP.
//!
//! # Layout
//! - [`callbacks`]: the listener for callbacks of banks
//! - [`checks`]: reasons not to start: schema, roles, rails
//! - [`endpoints`]: `/healthz`, `/readyz` and `/metrics`
//! - [`gauges`]: metrics that are read from the database
//! - [`lanes`]: the lanes that the settings name, with their engines and destinations
//! - [`lock_holders`]: which transaction has held the policies of the rails for long
//! - [`log`]: the log's format and filters
//! - [`metrics`]: the engine's metrics for Prometheus
//! - [`secrets`]: secrets and certificates that are read again
//! - [`systemd`]: what a unit of `Type=notify` hears
//! - [`traces`]: the trace exporter, and counts of exported and dropped spans

pub(crate) mod callbacks;
pub(crate) mod checks;
pub(crate) mod endpoints;
pub(crate) mod gauges;
pub(crate) mod lanes;
mod lock_holders;
pub(crate) mod log;
pub(crate) mod metrics;
pub(crate) mod secrets;
mod state_file;
pub(crate) mod systemd;
pub(crate) mod traces;
