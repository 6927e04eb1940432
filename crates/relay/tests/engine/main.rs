//! Tests of the engine against a fake lane in memory that enforces leases. Time is tokio's paused clock: it advances
//! only when every task waits, so timings are exact and do not depend on the machine.

#![expect(clippy::expect_used, clippy::panic, reason = "the fake lane is test code outside of test functions")]

mod circuit_breaker;
mod claims;
mod completions;
#[cfg(feature = "fail-points")]
mod crash_points;
mod leases;
mod poison;
mod repair;
mod shutdown;
mod sim;
mod slow_routes;
#[cfg(feature = "fail-points")]
mod swarm;
mod wakeups;
