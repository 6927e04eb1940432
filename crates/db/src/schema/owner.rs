//! Makes a session act as the owner of the schema, for DDL that no function can run.
//!
//! The checks are those of an install, in `schema/assume_owner_role.sql`.

use tokio_postgres::Client;

use super::{
    files,
    guard::{PIN, Refusal},
};

/// Why the session does not act as the owner.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The login may not, or it would let another login act with its rights.
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

/// Sets the role of the session to `symphony_control`, and pins its search_path. Times are shown in UTC, and no lock is
/// waited for longer than the timeout.
///
/// # Errors
/// See [`Error`].
pub async fn become_owner(client: &Client, lock_timeout_seconds: u32) -> Result<(), Error> {
    // The transaction is rolled back: nothing is granted for longer than the checks.
    let check = format!("begin;\n{PIN}{}\nrollback;", files::ASSUME_OWNER_ROLE.text);
    if let Err(error) = client.batch_execute(&check).await {
        // The first error is what matters.
        let _ = client.batch_execute("rollback").await;
        return Err(error.into());
    }
    let settings = format!(
        "set role symphony_control; set search_path = pg_catalog, pg_temp; set timezone = 'UTC'; \
         set lock_timeout = '{lock_timeout_seconds}s'; set default_transaction_isolation = 'read committed'"
    );
    Ok(client.batch_execute(&settings).await?)
}
