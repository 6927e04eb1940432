//! What can go wrong with the calls of the metadata lane.

use thiserror::Error;

use super::fault::Call;
use super::{Fault, Report, report, sqlstate};

/// Why an entry was not created. The caller's transaction has failed with it.
#[derive(Debug, Error)]
pub enum CreateError {
    /// Something in the entry is too long, out of range or not JSON that the database can hold. Correct it.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nothing that the entry could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for CreateError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(Fault::of(report, &Call::CREATE_METADATA)),
        }
    }
}

/// Why no entries were claimed or repaired.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// The worker's name is blank or too long, or a number is out of range. Correct it.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nothing that the arguments could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for ClaimError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(Fault::of(report, &Call::CLAIM)),
        }
    }
}

/// Why an entry was not moved. Nothing has changed.
#[derive(Debug, Error)]
pub enum MoveError {
    /// There is no such entry. Look at the id.
    #[error(transparent)]
    Missing(Report),
    /// The entry is PUBLISHED or in the DLQ already. Nothing is left to do.
    #[error(transparent)]
    AlreadyTerminal(Report),
    /// The entry is in another status than the move takes it from, or has retries left. Drop the work if the claim was yours.
    #[error(transparent)]
    WrongStatus(Report),
    /// Another claim holds the entry. Drop the work; do not complete it again.
    #[error(transparent)]
    ClaimLost(Report),
    /// An argument cannot be held by the database. Correct it while the claim lasts.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nothing that the arguments could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for MoveError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(sqlstate::NO_SUCH_ENTRY) => Self::Missing(report),
            Some(sqlstate::ALREADY_TERMINAL) => Self::AlreadyTerminal(report),
            Some(sqlstate::INVALID_STATE | sqlstate::ILLEGAL_TRANSITION) => Self::WrongStatus(report),
            Some(sqlstate::LEASE_LOST) => Self::ClaimLost(report),
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(Fault::of(report, &Call::MOVE_METADATA)),
        }
    }
}

/// Why it is not known what an entity has.
#[derive(Debug, Error)]
pub enum FindError {
    /// The type or the id of the entity is too long. Correct it.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nothing that the arguments could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for FindError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(report.into()),
        }
    }
}

report::from_drivers!(CreateError, ClaimError, MoveError, FindError);
