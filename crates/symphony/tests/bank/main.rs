//! The simulated bank as a process: every fault does what its name says, and the ledger records what was executed.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not recognise helpers as tests"
)]

mod bounds;
mod faults;
mod keys;
mod ledger;
mod process;
