//! The event lane as processes: two relayers publish to a real broker while relayers and the broker are killed.
//!
//! # Layout
//! - [`crash_recovery`]: the run with kills, for each broker
//! - [`dead_relayer`]: claims of a relayer that died, released early
//! - [`startup_checks`]: why a relayer with events does not start
//! - [`harness`]: a test database, a broker and relayers; [`producers`] publish the events
//! - [`broker`]: a real broker, and the events that a consumer reads from it; [`rabbitmq`] has the consumer of
//!   RabbitMQ, the test kit those of the others
//!
//! [`relayer`] and [`http`] belong to the tests of the payment lane. [`program`] runs other commands.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, but does not recognise helpers outside of test functions"
)]

mod broker;
mod crash_recovery;
mod dead_relayer;
mod harness;
#[path = "../relayer/http.rs"]
mod http;
mod producers;
#[path = "../program/mod.rs"]
mod program;
mod rabbitmq;
#[path = "../relayer/relayer.rs"]
#[allow(dead_code, reason = "the payment lane uses more of it")]
mod relayer;
mod startup_checks;
