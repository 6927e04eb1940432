//! The event lane as processes: two relayers carry events to a real broker while relayers and the broker are killed.
//!
//! # Layout
//! - [`killing`]: the run itself, for each broker
//! - [`course`]: a database, a broker and relayers, and how far they have come; [`publishers`] feed it
//! - [`bus`]: a broker, and what somebody else finds in it; [`rabbitmq`] is how that one is read, for the others the kit knows
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
#[path = "../program/mod.rs"]
mod program;
mod publishers;
mod rabbitmq;
mod refusing;
#[path = "../relayer/relayer.rs"]
#[allow(dead_code, reason = "the payment lane asks more of it")]
mod relayer;
