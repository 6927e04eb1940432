//! Refuses a database in which another owner's code would run with our privileges, before anything in our schemas is
//! used.
//!
//! The rule is in `schema/guard.sql`, which reads only the system catalogue; the install script has the same text. This
//! module runs it on a session, and classifies refusals.

use tokio_postgres::{Client, Transaction, error::SqlState};

use super::{catalogue, files};

/// Resolves unqualified names to the server's own functions and operators, whatever search_path the login has.
pub(super) const PIN: &str = "set local search_path = pg_catalog, pg_temp;\n";

/// The database refused, for a reason that its administrator can remove.
#[derive(Debug, thiserror::Error)]
#[error("{message}{}", hint.as_ref().map(|hint| format!("\n{hint}")).unwrap_or_default())]
pub struct Refusal {
    /// The reason.
    pub message: String,
    /// What to do next.
    pub hint: Option<String>,
    /// The error of the server.
    #[source]
    pub source: tokio_postgres::Error,
}

impl Refusal {
    /// The refusal in an error of the server, or the error itself if it is no refusal.
    pub(super) fn of(error: tokio_postgres::Error) -> Result<Self, tokio_postgres::Error> {
        let expected = [
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            SqlState::FEATURE_NOT_SUPPORTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        match error.as_db_error() {
            Some(error_fields) if expected.contains(error_fields.code()) => {
                let hint = error_fields.hint().map(str::to_owned).or_else(|| {
                    (*error_fields.code() == SqlState::LOCK_NOT_AVAILABLE)
                        .then(|| "Another session holds a lock that is needed; pg_locks and pg_stat_activity name it. Run this again.".to_owned())
                });
                Ok(Self { message: error_fields.message().to_owned(), hint, source: error })
            }
            _ => Err(error),
        }
    }
}

/// Why a session must not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Symphony's schema does not exist. Another login could create it at any moment, so nothing may be called in it.
    #[error("Symphony is not installed in this database; run: symphony install")]
    NotInstalled,
    /// Another owner's code would run.
    #[error(transparent)]
    Refused(Refusal),
    /// The connection or a statement failed.
    #[error("a database query failed")]
    Database(#[source] tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Refusal::of(error).map_or_else(Self::Database, Self::Refused)
    }
}

/// Checks that Symphony owns what this session is about to read and call in its schemas.
///
/// After that, only the owner and superusers can change it.
///
/// # Errors
/// See [`Error`].
pub async fn guard(client: &mut Client) -> Result<(), Error> {
    let transaction = client.build_transaction().read_only(true).start().await?;
    transaction.batch_execute(PIN).await?;
    // Before the guard, because a missing schema could be created after it.
    let installed = !catalogue::lanes(&transaction).await?.is_empty();
    guard_in(&transaction).await?;
    transaction.rollback().await?;
    if installed { Ok(()) } else { Err(Error::NotInstalled) }
}

/// The same in a transaction whose search_path is pinned, whether or not a lane is installed.
pub(super) async fn guard_in(transaction: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    transaction.batch_execute(files::GUARD.text).await
}
