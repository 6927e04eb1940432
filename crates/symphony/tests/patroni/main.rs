//! A highly available cluster under Patroni: leaders are switched over, killed, paused and cut off under load.
//!
//! Afterwards the banks and a reader of the broker say what became of payments, events and metadata.
//!
//! # Layout
//! - [`failover`]: the run, in an asynchronous and in a synchronous cluster
//! - [`harness`]: the cluster with banks, broker, store and relayers
//! - [`load`]: producers that go on through every outage
//! - [`audit`]: what must be true at the end, and the report
//!
//! [`bank`], [`relayer`], [`producers`] and [`http`] belong to the tests of the payment lane.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, but does not recognise helpers outside of test functions"
)]

mod audit;
#[path = "../relayer/bank.rs"]
#[allow(dead_code, reason = "the payment lane uses more of it")]
mod bank;
mod failover;
mod harness;
#[path = "../relayer/http.rs"]
mod http;
mod load;
#[path = "../relayer/producers.rs"]
#[allow(dead_code, reason = "its producers give up after a minute, which is less than an outage may last")]
mod producers;
#[path = "../relayer/relayer.rs"]
#[allow(dead_code, reason = "the payment lane uses more of it")]
mod relayer;
