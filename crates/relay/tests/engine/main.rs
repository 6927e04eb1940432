//! The engine against a lane in memory that keeps the rules of leases. Time is tokio's paused clock: it moves only when
//! every task waits, so what happens when is exact, and nothing here depends on how fast the machine is.

#![expect(
    clippy::expect_used,
    clippy::panic,
    reason = "the lane in memory is part of a test, outside of test functions"
)]

mod breaking;
mod claiming;
mod completing;
#[cfg(feature = "fail-points")]
mod dying;
mod leases;
mod repairing;
mod sim;
mod stopping;
mod waking;
