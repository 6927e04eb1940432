//! Why a call of a worker, an operator or a reader failed, by what the caller can do next.
//!
//! The three lanes share these types. The SQLSTATE decides the variant; each variant keeps the database's own message,
//! detail and hint. Nothing here retries: the relayer's engine decides that.

use symphony_client::error::CallContext;
pub use symphony_client::error::{DatabaseError, ErrorDetails, sqlstate};
use thiserror::Error;

const CLAIM: CallContext = CallContext::new(
    "symphony_executor",
    "Connect and claim again: a lease whose answer was lost expires by itself",
);
const COMPLETE: CallContext = CallContext::new(
    "symphony_executor",
    "Connect and complete again with the same lease: a refusal then says whether the first call was recorded",
);
const OPERATE: CallContext = CallContext::new(
    "symphony_operator",
    "Connect and check symphony.payment_outbox_operations_log for the operation",
);

/// Why rows were not claimed, renewed, released or repaired, or a read with arguments was refused.
#[derive(Debug, Error)]
pub enum ClaimError {
    /// An argument is blank or out of range. Correct it.
    #[error(transparent)]
    InvalidArgument(ErrorDetails),
    /// The arguments are not to blame: the connection, the login or the installation is.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<ErrorDetails> for ClaimError {
    fn from(details: ErrorDetails) -> Self {
        match details.sqlstate() {
            Some(state) if sqlstate::is_invalid_argument(state) => Self::InvalidArgument(details),
            _ => Self::Database(DatabaseError::classify(details, &CLAIM)),
        }
    }
}

/// Why the result of an attempt was not recorded.
#[derive(Debug, Error)]
pub enum CompleteError {
    /// The row has its terminal state already. Nothing is left to do.
    #[error(transparent)]
    AlreadyTerminal(ErrorDetails),
    /// The lease expired, was released or was taken over. Drop the work; do not complete it again.
    #[error(transparent)]
    LeaseLost(ErrorDetails),
    /// The row is in another state than this call takes it from, or the state is not one that a worker may record.
    #[error(transparent)]
    InvalidState(ErrorDetails),
    /// There is no such row. Check the id.
    #[error(transparent)]
    NotFound(ErrorDetails),
    /// An argument is too long or out of range. Correct it while the lease lasts.
    #[error(transparent)]
    InvalidArgument(ErrorDetails),
    /// The result is not to blame: the connection, the login or the installation is.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<ErrorDetails> for CompleteError {
    fn from(details: ErrorDetails) -> Self {
        match details.sqlstate() {
            Some(sqlstate::ALREADY_TERMINAL) => Self::AlreadyTerminal(details),
            Some(sqlstate::LEASE_LOST) => Self::LeaseLost(details),
            Some(sqlstate::INVALID_STATE | sqlstate::ILLEGAL_TRANSITION) => Self::InvalidState(details),
            Some(sqlstate::NO_SUCH_ENTRY) => Self::NotFound(details),
            Some(state) if sqlstate::is_invalid_argument(state) => Self::InvalidArgument(details),
            _ => Self::Database(DatabaseError::classify(details, &COMPLETE)),
        }
    }
}

/// Why an operator's command was refused.
#[derive(Debug, Error)]
pub enum OperateError {
    /// The outbox is not in a state that allows it: pending, leased, sent, ended, redriven or resolved already, its outcome
    /// is unknown, or a new key is used already. The message says which, and what to do.
    #[error(transparent)]
    InvalidState(ErrorDetails),
    /// An argument is blank or out of range, or there is no such outbox. Correct it.
    #[error(transparent)]
    InvalidArgument(ErrorDetails),
    /// The rail is not registered.
    #[error(transparent)]
    UnknownRail(ErrorDetails),
    /// The arguments are not to blame: the connection, the login or the installation is.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<ErrorDetails> for OperateError {
    fn from(details: ErrorDetails) -> Self {
        match details.sqlstate() {
            Some(
                sqlstate::INVALID_STATE
                | sqlstate::ALREADY_TERMINAL
                | sqlstate::LEASE_LOST
                | sqlstate::IDEMPOTENCY_CONFLICT,
            ) => Self::InvalidState(details),
            Some(sqlstate::UNKNOWN_RAIL) => Self::UnknownRail(details),
            Some(state) if sqlstate::is_invalid_argument(state) => Self::InvalidArgument(details),
            _ => Self::Database(DatabaseError::classify(details, &OPERATE)),
        }
    }
}

/// Lets `?` classify the driver's errors.
macro_rules! from_driver {
    ($($error:ty),+) => {
        $(
            impl From<tokio_postgres::Error> for $error {
                fn from(error: tokio_postgres::Error) -> Self {
                    ErrorDetails::from(error).into()
                }
            }
        )+
    };
}

from_driver!(ClaimError, CompleteError, OperateError);
