//! What can go wrong with the calls of the event lane.

use thiserror::Error;

use super::fault::Call;
use super::{Fault, Report, report, sqlstate};

/// Why an event was not published. The caller's transaction has failed with it.
#[derive(Debug, Error)]
pub enum PublishError {
    /// Something in the event is blank, too long or not JSON that the database can hold. Correct it.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nothing that the event could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for PublishError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(Fault::of(report, &Call::PUBLISH)),
        }
    }
}

/// Why no events were claimed.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// The worker's name has a character that the database cannot hold. Correct it.
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

/// Why it was not recorded how an event went.
#[derive(Debug, Error)]
pub enum CompleteError {
    /// The event is processed already, or another processor holds its claim. Drop the work; do not complete it again.
    #[error(transparent)]
    ClaimLost(Report),
    /// An argument cannot be held by the database. Correct it while the claim lasts.
    #[error(transparent)]
    InvalidArgument(Report),
    /// Nothing that the outcome could help.
    #[error(transparent)]
    Fault(#[from] Fault),
}

impl From<Report> for CompleteError {
    fn from(report: Report) -> Self {
        match report.sqlstate() {
            Some(sqlstate::LEASE_LOST) => Self::ClaimLost(report),
            Some(state) if sqlstate::is_about_an_argument(state) => Self::InvalidArgument(report),
            _ => Self::Fault(Fault::of(report, &Call::COMPLETE_EVENT)),
        }
    }
}

report::from_drivers!(PublishError, ClaimError, CompleteError);
