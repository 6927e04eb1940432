//! Refuses a database in which a stranger's code would run with our rights, before anything in our schemas is touched.
//!
//! The rule is in `schema/guard.sql`, which reads the catalogue alone; the install script carries the same text. This module
//! runs it on a session, and says what a refusal is.

use tokio_postgres::{Client, Transaction, error::SqlState};

use super::{catalogue, files};

/// What pins every name of a look to the server's own functions and operators: a login's path may lead elsewhere first.
pub(super) const PIN: &str = "set local search_path = pg_catalog, pg_temp;\n";

/// The database refused, for a reason that its administrator can remove.
#[derive(Debug, thiserror::Error)]
#[error("{message}{}", hint.as_ref().map(|hint| format!("\n{hint}")).unwrap_or_default())]
pub struct Refusal {
    /// What is in the way.
    pub message: String,
    /// What to do about it.
    pub hint: Option<String>,
    /// What the server said.
    #[source]
    pub source: tokio_postgres::Error,
}

impl Refusal {
    /// The refusal in an error of the server; the error itself where it is something else.
    pub(super) fn of(error: tokio_postgres::Error) -> Result<Self, tokio_postgres::Error> {
        let expected = [
            SqlState::INSUFFICIENT_PRIVILEGE,
            SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
            SqlState::FEATURE_NOT_SUPPORTED,
            SqlState::LOCK_NOT_AVAILABLE,
        ];
        match error.as_db_error() {
            Some(said) if expected.contains(said.code()) => {
                let hint = said.hint().map(str::to_owned).or_else(|| {
                    (*said.code() == SqlState::LOCK_NOT_AVAILABLE)
                        .then(|| "Another session holds a lock that is needed; pg_locks and pg_stat_activity name it. Run this again.".to_owned())
                });
                Ok(Self { message: said.message().to_owned(), hint, source: error })
            }
            _ => Err(error),
        }
    }
}

/// Why a session must not be used.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no schema of ours. A stranger could create one at any moment, so nothing is called there.
    #[error("Symphony is not installed in this database; run: symphony install")]
    NotInstalled,
    /// A stranger's code would run.
    #[error(transparent)]
    Refused(Refusal),
    /// The connection or a statement failed.
    #[error("the database could not be asked")]
    Database(#[source] tokio_postgres::Error),
}

impl From<tokio_postgres::Error> for Error {
    fn from(error: tokio_postgres::Error) -> Self {
        Refusal::of(error).map_or_else(Self::Database, Self::Refused)
    }
}

/// Makes sure that what this session is about to read and call in our schemas is ours.
///
/// Once it has passed, nobody but the owner and superusers can change that.
///
/// # Errors
/// See [`Error`].
pub async fn guard(client: &mut Client) -> Result<(), Error> {
    let transaction = client.build_transaction().read_only(true).start().await?;
    transaction.batch_execute(PIN).await?;
    // Before the look: a schema that was not there could be created after it.
    let installed = !catalogue::lanes(&transaction).await?.is_empty();
    guard_in(&transaction).await?;
    transaction.rollback().await?;
    if installed { Ok(()) } else { Err(Error::NotInstalled) }
}

/// The same for a transaction whose search_path is pinned, whether or not anything is installed.
pub(super) async fn guard_in(transaction: &Transaction<'_>) -> Result<(), tokio_postgres::Error> {
    transaction.batch_execute(files::GUARD.text).await
}
