//! What can go wrong with each kind of call, sorted by what the caller can do next.
//!
//! The sorting is by SQLSTATE and written once, whichever driver brought it. What the database said is kept
//! to the letter: its message, detail and hint, with the driver's error as the source. Knows no retries: whether
//! and when to try again is decided above.

pub mod event;
mod fault;
pub mod metadata;
mod report;
pub mod sqlstate;

use thiserror::Error;

use fault::Call;
pub use fault::Fault;
pub use report::Report;

/// Why an instruction was not enqueued. The caller's transaction has failed with it.
#[derive(Debug, Error)]
pub enum EnqueueError {
    /// The key was used for another participant, rail or payload. Send what was sent first, or a new key.
    #[error(transparent)]
    IdempotencyConflict(Report),
    /// Something in the instruction is blank, too long or not JSON that the database can hold. Correct it.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nobody registered that rail. Check the spelling, or let an operator register it.
    #[error(transparent)]
    UnknownRail(Report),
    /// Nothing that the instruction could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for EnqueueError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(sqlstate::IDEMPOTENCY_CONFLICT) => Self::IdempotencyConflict(report),
            Some(sqlstate::UNKNOWN_RAIL) => Self::UnknownRail(report),
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(Fault::of(report, &Call::ENQUEUE)),
        }
    }
}

/// Why leases were not granted, prolonged, given back or repaired.
#[derive(Debug, Error)]
pub enum LeaseError {
    /// An argument is blank or out of range. Correct it.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nothing that the arguments could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for LeaseError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(Fault::of(report, &Call::LEASE)),
        }
    }
}

/// Why an outcome was not recorded.
#[derive(Debug, Error)]
pub enum CompleteError {
    /// The ledger has the outcome of this outbox already. Nothing is left to do.
    #[error(transparent)]
    AlreadyTerminal(Report),
    /// The lease expired, was given back or was taken over. Drop the work; do not complete it again.
    #[error(transparent)]
    LeaseLost(Report),
    /// The state is not one that a worker may record.
    #[error(transparent)]
    InvalidState(Report),
    /// A field of the outcome is too long or out of range. Correct it while the lease lasts.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nothing that the outcome could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for CompleteError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(sqlstate::ALREADY_TERMINAL) => Self::AlreadyTerminal(report),
            Some(sqlstate::LEASE_LOST) => Self::LeaseLost(report),
            Some(sqlstate::INVALID_STATE) => Self::InvalidState(report),
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(Fault::of(report, &Call::COMPLETE)),
        }
    }
}

/// Why what an operator wanted was not done.
#[derive(Debug, Error)]
pub enum OperateError {
    /// The outbox is not in a state that allows it: still pending, dispatched, redriven or resolved already, or
    /// nobody knows whether it was paid. The message says which, and what to do.
    #[error(transparent)]
    InvalidState(Report),
    /// An argument is blank or out of range, or there is no such outbox. Correct it.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nobody registered that rail.
    #[error(transparent)]
    UnknownRail(Report),
    /// Nothing that the arguments could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for OperateError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(sqlstate::INVALID_STATE) => Self::InvalidState(report),
            Some(sqlstate::UNKNOWN_RAIL) => Self::UnknownRail(report),
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(Fault::of(report, &Call::OPERATE)),
        }
    }
}

/// A read can fail only by what no argument could help.
impl From<Report> for Fault {
    fn from(report: Report) -> Self {
        Self::of(report, &Call::READ)
    }
}

report::from_drivers!(EnqueueError, LeaseError, CompleteError, OperateError, Fault);
