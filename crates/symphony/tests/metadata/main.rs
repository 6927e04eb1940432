//! The metadata lane as processes: relayers copy entries to a real second store while the test kills both.
//!
//! # Layout
//! - [`crash_recovery`]: relayers and the store die at random moments, and a relayer at each step of its loop
//! - [`dead_letters`]: a store that refuses entries, and their log lines
//! - [`startup_checks`]: why a relayer with metadata does not start
//! - [`harness`]: a test database, a second store and relayers; [`second_store`]: a real store, and the records in it
//!
//! [`relayer`] and [`http`] belong to the tests of the payment lane. [`program`] runs other commands.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, but does not recognise helpers outside of test functions"
)]

mod crash_recovery;
mod dead_letters;
mod harness;
#[path = "../relayer/http.rs"]
mod http;
#[path = "../program/mod.rs"]
mod program;
#[path = "../relayer/relayer.rs"]
#[allow(dead_code, reason = "the payment lane uses more of it")]
mod relayer;
mod second_store;
mod startup_checks;
