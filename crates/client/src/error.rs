//! Why a call failed, by what the caller can do next.
//!
//! The SQLSTATE decides the variant, for both drivers alike. Each variant keeps the database's own message, detail and
//! hint, with the driver's error as the source. This crate never retries: the caller decides.

mod database;
mod details;
pub mod sqlstate;

use thiserror::Error;

pub use database::{CallContext, DatabaseError};
pub use details::ErrorDetails;

/// Why the database did not enqueue an instruction. The caller's transaction has failed with it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum EnqueueError {
    /// The idempotency key belongs to another participant, rail or payload. Send the first payload again, or a new key.
    #[error(transparent)]
    IdempotencyConflict(ErrorDetails),
    /// A field of the instruction is blank, too long or not JSON that the database can store. Correct it.
    #[error(transparent)]
    InvalidArgument(ErrorDetails),
    /// The rail is not registered. Check the spelling, or ask an operator to register it.
    #[error(transparent)]
    UnknownRail(ErrorDetails),
    /// The instruction is not to blame: the connection, the login or the installation is.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<ErrorDetails> for EnqueueError {
    fn from(details: ErrorDetails) -> Self {
        match details.sqlstate() {
            Some(sqlstate::IDEMPOTENCY_CONFLICT) => Self::IdempotencyConflict(details),
            Some(sqlstate::UNKNOWN_RAIL) => Self::UnknownRail(details),
            Some(state) if sqlstate::is_invalid_argument(state) => Self::InvalidArgument(details),
            _ => Self::Database(DatabaseError::classify(details, &CallContext::ENQUEUE)),
        }
    }
}

/// Why the database did not cancel a payment. The caller's transaction has failed with it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CancelError {
    /// The payment has ended: it was dispatched, has failed or was cancelled before. The message says which.
    #[error(transparent)]
    Ended(ErrorDetails),
    /// The payment may have been sent: a worker holds a lease on it, an earlier attempt left, or it is of an earlier epoch.
    /// Read its outcome; recall at the bank what was paid.
    #[error(transparent)]
    MayBeSent(ErrorDetails),
    /// There is no such payment, or an argument is blank or too long. Correct it.
    #[error(transparent)]
    InvalidArgument(ErrorDetails),
    /// The payment is not to blame: the connection, the login or the installation is.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<ErrorDetails> for CancelError {
    fn from(details: ErrorDetails) -> Self {
        match details.sqlstate() {
            Some(sqlstate::ALREADY_TERMINAL) => Self::Ended(details),
            Some(sqlstate::LEASE_LOST) => Self::MayBeSent(details),
            Some(state) if sqlstate::is_invalid_argument(state) => Self::InvalidArgument(details),
            _ => Self::Database(DatabaseError::classify(details, &CallContext::CANCEL)),
        }
    }
}

/// Why the database did not publish an event. The caller's transaction has failed with it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum PublishError {
    /// A field of the event is blank, too long or not JSON that the database can store. Correct it.
    #[error(transparent)]
    InvalidArgument(ErrorDetails),
    /// The event is not to blame: the connection, the login or the installation is.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<ErrorDetails> for PublishError {
    fn from(details: ErrorDetails) -> Self {
        match details.sqlstate() {
            Some(state) if sqlstate::is_invalid_argument(state) => Self::InvalidArgument(details),
            _ => Self::Database(DatabaseError::classify(details, &CallContext::PUBLISH)),
        }
    }
}

/// Why the database did not create a metadata entry. The caller's transaction has failed with it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// A field of the entry is too long, out of range or not JSON that the database can store. Correct it.
    #[error(transparent)]
    InvalidArgument(ErrorDetails),
    /// The entry is not to blame: the connection, the login or the installation is.
    #[error(transparent)]
    Database(#[from] DatabaseError),
}

impl From<ErrorDetails> for CreateError {
    fn from(details: ErrorDetails) -> Self {
        match details.sqlstate() {
            Some(state) if sqlstate::is_invalid_argument(state) => Self::InvalidArgument(details),
            _ => Self::Database(DatabaseError::classify(details, &CallContext::CREATE)),
        }
    }
}

/// Lets `?` classify the errors of both drivers.
macro_rules! from_drivers {
    ($($error:ty),+) => {
        $(
            #[cfg(feature = "tokio-postgres")]
            impl From<tokio_postgres::Error> for $error {
                fn from(error: tokio_postgres::Error) -> Self {
                    ErrorDetails::from(error).into()
                }
            }

            #[cfg(feature = "sqlx")]
            impl From<sqlx::Error> for $error {
                fn from(error: sqlx::Error) -> Self {
                    ErrorDetails::from(error).into()
                }
            }
        )+
    };
}

from_drivers!(EnqueueError, CancelError, PublishError, CreateError, DatabaseError);
