//! The metadata lane as processes: relayers carry entries to a real second store while relayers and the store are killed.
//!
//! # Layout
//! - [`killing`]: relayers and the store are killed at moments by chance; [`dying`]: a relayer dies at each step of its loop
//! - [`poisoned`]: a store that refuses, and what is logged of it
//! - [`refusing`]: why a relayer with metadata does not start
//! - [`course`]: a database, relayers and how far they have come; [`second`]: the second store, and what somebody else finds in it
//!
//! The relayer as a process, and HTTP to ask it, are those of the tests of the payment lane; other commands are run by [`program`].
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod course;
mod dying;
#[path = "../relayer/http.rs"]
mod http;
mod killing;
mod poisoned;
#[path = "../program/mod.rs"]
mod program;
mod refusing;
#[path = "../relayer/relayer.rs"]
#[allow(dead_code, reason = "the payment lane asks more of it")]
mod relayer;
mod second;
