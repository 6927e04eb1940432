//! The relayer as a process, with a bank that is another, while everything around it breaks: proofs 26 to 29.
//!
//! # Layout
//! - [`yard`]: a database, a bank and relayers, started, killed and audited; [`bank`], [`relayer`] and [`load`] are in it
//! - [`waking`]: being woken is enough, and so is polling
//! - [`idling`]: what a relayer costs that has nothing to do
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod audit;
mod bank;
mod dying;
mod freezing;
mod http;
mod idling;
mod killing;
mod load;
mod relayer;
mod replies;
mod stopping;
mod waking;
mod yard;
