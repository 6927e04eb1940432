//! The simulated bank as a process: every fault does what its name says, and the ledger tells the truth about it.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod bounds;
mod faults;
mod keys;
mod ledger;
mod process;
