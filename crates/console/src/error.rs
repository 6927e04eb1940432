//! Errors that keep the console from starting, each with a hint.

use symphony_db::error::DatabaseError;
use symphony_db::{connect, schema};

/// Why the console cannot start.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A setting is wrong. Correct it.
    #[error("{message}")]
    Setting {
        /// What is wrong.
        message: String,
        /// What to do next.
        hint: &'static str,
    },
    /// The URL of a login is wrong, or the database could not be reached.
    #[error(transparent)]
    Connect(#[from] connect::Error),
    /// The URL in a setting is wrong.
    #[error("{setting}: {source}")]
    Address {
        /// The setting.
        setting: &'static str,
        /// What is wrong with it.
        source: connect::Error,
    },
    /// The login lacks a role, or has more rights than the console may use.
    #[error("{message}")]
    Login {
        /// What is wrong.
        message: String,
        /// What to do next.
        hint: String,
    },
    /// Symphony is not installed in this database, or its schema was changed.
    #[error(transparent)]
    Guard(#[from] schema::guard::Error),
    /// PostgreSQL refused a statement.
    #[error(transparent)]
    Database(#[from] DatabaseError),
    /// The operating system gave no random bytes.
    #[error("the operating system provided no random bytes: {0}")]
    Random(getrandom::Error),
}

impl Error {
    pub(crate) fn setting(message: impl Into<String>, hint: &'static str) -> Self {
        Self::Setting { message: message.into(), hint }
    }
}
