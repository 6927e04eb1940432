//! Errors that any call can return, whatever its arguments.

use std::error::Error;
use std::fmt;

use super::{ErrorDetails, sqlstate};

/// An error that the arguments of the call did not cause.
#[derive(Debug)]
#[non_exhaustive]
pub enum DatabaseError {
    /// A serialization failure or a deadlock. Run the whole transaction again.
    RetryTransaction(ErrorDetails),
    /// Another session held a lock for longer than this call waits, such as a worker with an open transaction during a
    /// change of rail policy. Let that session end, then run the whole transaction again.
    LockHeld(ErrorDetails),
    /// The call needs READ COMMITTED, because it decides on the newest rows. Use that isolation level in the
    /// transaction, or as the default of the login.
    NotReadCommitted(ErrorDetails),
    /// The login lacks the role for this call. Ask a DBA to grant it.
    MissingRole {
        /// The role to grant.
        role: &'static str,
        /// What the database reported.
        details: ErrorDetails,
    },
    /// Symphony is not installed in this database, or in an older version.
    NotInstalled(ErrorDetails),
    /// The connection was lost, so it is unknown whether the call took effect.
    ConnectionLost {
        /// How to continue safely.
        next: &'static str,
        /// What the driver or the database reported last.
        details: ErrorDetails,
    },
    /// An UPDATE, DELETE or TRUNCATE of an append-only table was refused. Use the functions of the schema.
    AppendOnly(ErrorDetails),
    /// The ledger's unique index rejected a second terminal outcome that the lease should have prevented. Log it as a
    /// separate event. Nothing was recorded twice.
    TerminalBackstop(ErrorDetails),
    /// Any other error.
    Other(ErrorDetails),
}

/// What a [`DatabaseError`] tells about the failed call: the role that it needs, and how to continue after a lost
/// connection.
#[derive(Clone, Copy, Debug)]
pub struct CallContext {
    role: &'static str,
    after_connection_loss: &'static str,
}

impl CallContext {
    pub(super) const ENQUEUE: Self = Self::new(
        "symphony_ingest",
        "Run the whole transaction again, with the same idempotency key: if it was committed, that is a replay",
    );
    pub(super) const CANCEL: Self = Self::new(
        "symphony_ingest",
        "Run the whole transaction again: if it was committed, the payment has ended as CANCELLED",
    );
    pub(super) const PUBLISH: Self = Self::new(
        "symphony_ingest",
        "Check whether the business rows of the same transaction were committed: if so, the event was too",
    );
    pub(super) const CREATE: Self = Self::new(
        "symphony_ingest",
        "Check whether the other rows of the same transaction were committed: if so, the entry was too",
    );
    const READ: Self = Self::new("symphony_readonly", "Connect and read again");

    /// For a call that needs `role`, and that is safe to repeat as `after_connection_loss` says.
    pub const fn new(role: &'static str, after_connection_loss: &'static str) -> Self {
        Self { role, after_connection_loss }
    }
}

impl DatabaseError {
    /// Classifies an error that the arguments of the call did not cause.
    pub fn classify(details: ErrorDetails, call: &CallContext) -> Self {
        if details.connection_lost() {
            return Self::ConnectionLost { next: call.after_connection_loss, details };
        }
        match details.sqlstate() {
            Some(sqlstate::APPEND_ONLY) => Self::AppendOnly(details),
            Some(sqlstate::INSUFFICIENT_PRIVILEGE) => Self::MissingRole { role: call.role, details },
            Some(sqlstate::INVALID_TRANSACTION_STATE) => Self::NotReadCommitted(details),
            Some(sqlstate::LOCK_NOT_AVAILABLE) => Self::LockHeld(details),
            Some(sqlstate::UNIQUE_VIOLATION)
                if details.constraint().is_some_and(sqlstate::is_terminal_backstop) =>
            {
                Self::TerminalBackstop(details)
            }
            Some(state) if sqlstate::is_serialization_failure(state) => Self::RetryTransaction(details),
            Some(state) if sqlstate::is_missing_object(state) => Self::NotInstalled(details),
            _ => Self::Other(details),
        }
    }

    /// Replaces the role that [`MissingRole`](Self::MissingRole) names.
    #[must_use]
    pub fn for_role(self, role: &'static str) -> Self {
        match self {
            Self::MissingRole { details, .. } => Self::MissingRole { role, details },
            other => other,
        }
    }

    /// What the database or the driver reported.
    pub fn details(&self) -> &ErrorDetails {
        match self {
            Self::RetryTransaction(details)
            | Self::LockHeld(details)
            | Self::NotReadCommitted(details)
            | Self::MissingRole { details, .. }
            | Self::NotInstalled(details)
            | Self::ConnectionLost { details, .. }
            | Self::AppendOnly(details)
            | Self::TerminalBackstop(details)
            | Self::Other(details) => details,
        }
    }
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RetryTransaction(details) => write!(f, "{}. Run the whole transaction again", details.message()),
            // PostgreSQL's own message names neither the lock nor its holder.
            Self::LockHeld(details) if details.hint().is_none() => {
                write!(f, "{details}. Another session holds the lock: run the whole transaction again")
            }
            Self::MissingRole { role, details } => {
                write!(f, "{details}. Ask a DBA to run: grant {role} to the login that you connect as")
            }
            Self::NotInstalled(details) => write!(
                f,
                "{details}. Symphony is not installed in this database, or is older than this program: check the \
                 address, then run: symphony install"
            ),
            Self::ConnectionLost { next, details } => {
                write!(
                    f,
                    "the connection was lost and it is unknown whether the call took effect ({details}). {next}"
                )
            }
            Self::TerminalBackstop(details) => write!(
                f,
                "{details}. The ledger rejected a second terminal outcome: nothing was recorded twice, but the lease \
                 should have prevented it"
            ),
            Self::LockHeld(details)
            | Self::NotReadCommitted(details)
            | Self::AppendOnly(details)
            | Self::Other(details) => details.fmt(f),
        }
    }
}

/// The source is the driver's error, because the message already has the details.
impl Error for DatabaseError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.details().source()
    }
}

/// For reads, which have no invalid arguments.
impl From<ErrorDetails> for DatabaseError {
    fn from(details: ErrorDetails) -> Self {
        Self::classify(details, &CallContext::READ)
    }
}
