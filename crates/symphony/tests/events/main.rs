//! The event lane as processes: two relayers carry events to a real broker while relayers and the broker are killed.
//!
//! # Layout
//! - [`killing`]: the run itself, for each broker
//! - [`course`]: a database, a broker and relayers, and how far they have come; [`publishers`] feed it
//! - [`bus`]: a broker, and what somebody else finds in it; [`nats`], [`rabbitmq`] and [`redis`] are how each is read, the last by [`resp`]
//! - [`tally`]: what was committed against what has arrived
//! - [`refusing`]: why a relayer with events does not start
//!
//! The relayer as a process, and HTTP to ask it, are those of the tests of the payment lane; other commands are run by [`program`].
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod bus;
mod course;
#[path = "../relayer/http.rs"]
mod http;
mod killing;
mod nats;
#[path = "../program/mod.rs"]
mod program;
mod publishers;
mod rabbitmq;
mod redis;
mod refusing;
#[path = "../relayer/relayer.rs"]
#[allow(dead_code, reason = "the payment lane asks more of it")]
mod relayer;
mod resp;
mod tally;
