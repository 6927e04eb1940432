//! Runs the install script, if there is anything for it to do.

use tokio_postgres::{Client, error::SqlState, types::Type};

use super::{
    Lane, catalogue,
    script::{self, LOCK},
    verify::{self, Difference, verify},
};

/// What an install did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The schema was created, or brought to what this build carries.
    Applied,
    /// The database was what this build carries already: nothing was touched and nobody waited.
    AlreadyCurrent,
}

/// Why the database is not what this build makes. Unless said otherwise, nothing was changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database said no, for a reason that a person can remove: a missing right, a newer schema, an old server.
    #[error("{message}{}", hint.as_ref().map(|hint| format!("\n{hint}")).unwrap_or_default())]
    Refused {
        /// What is in the way.
        message: String,
        /// What to do about it.
        hint: Option<String>,
        /// What the server said.
        #[source]
        source: tokio_postgres::Error,
    },
    /// The script ran and what it can repair is repaired, but the database is still not what it should be.
    #[error("installed, but the database differs from this build in {}: {}", differences.len(), differences[0])]
    Differs {
        /// What differs.
        differences: Vec<Difference>,
    },
    /// The connection or a statement failed.
    #[error("the database could not be asked")]
    Database(#[source] tokio_postgres::Error),
    /// The catalogue could not be read.
    #[error(transparent)]
    Verify(#[from] verify::Error),
}

/// Installs `lanes` into the database of `client`, or upgrades them, in one transaction under an advisory lock. Lanes that
/// the database has already are brought along.
///
/// # Errors
/// See [`Error`].
pub async fn install(client: &mut Client, lanes: &[Lane]) -> Result<Installed, Error> {
    let transaction = client.transaction().await.map_err(Error::Database)?;
    let lock = "select pg_catalog.pg_advisory_xact_lock($1)";
    transaction.query_typed(lock, &[(&LOCK, Type::INT8)]).await.map_err(Error::Database)?;
    let mut lanes = [lanes, &catalogue::lanes(&transaction).await.map_err(Error::Database)?].concat();
    lanes.sort_unstable();
    lanes.dedup();
    // The script locks tables. Where there is nothing for it to do, nobody who works here is made to wait.
    if is_current(verify::verify_in(&transaction, &lanes).await)? {
        transaction.batch_execute(&script::guard(&lanes)).await.map_err(refused)?;
        transaction.rollback().await.map_err(Error::Database)?;
        return Ok(Installed::AlreadyCurrent);
    }
    transaction.batch_execute(&script::body(&lanes)).await.map_err(refused)?;
    transaction.commit().await.map_err(refused)?;
    let differences = verify(client, &lanes).await?;
    if differences.is_empty() { Ok(Installed::Applied) } else { Err(Error::Differs { differences }) }
}

fn is_current(verified: Result<Vec<Difference>, verify::Error>) -> Result<bool, Error> {
    match verified {
        Ok(differences) => Ok(differences.is_empty()),
        Err(verify::Error::NotInstalled) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

fn refused(error: tokio_postgres::Error) -> Error {
    let expected = [
        SqlState::INSUFFICIENT_PRIVILEGE,
        SqlState::OBJECT_NOT_IN_PREREQUISITE_STATE,
        SqlState::FEATURE_NOT_SUPPORTED,
    ];
    match error.as_db_error() {
        Some(said) if expected.contains(said.code()) => Error::Refused {
            message: said.message().to_owned(),
            hint: said.hint().map(str::to_owned),
            source: error,
        },
        _ => Error::Database(error),
    }
}

/// The lanes that the database of `client` has, by what is in its catalogue.
///
/// # Errors
/// When the database cannot be asked.
pub async fn installed_lanes(client: &Client) -> Result<Vec<Lane>, tokio_postgres::Error> {
    catalogue::lanes(client).await
}
