//! Runs the install script, if there is anything for it to do.

use std::time::Duration;

use tokio_postgres::Client;

use super::{
    Lane, catalogue,
    guard::Refusal,
    lock::LOCK_TIMEOUT,
    script,
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
    /// The database said no, for a reason that a person can remove: a missing right, a newer schema, an old server, a lock that
    /// another session holds, or a stranger's objects where ours must be.
    #[error(transparent)]
    Refused(Refusal),
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
/// the database has already are brought along. Waits [`LOCK_TIMEOUT`] for a lock.
///
/// # Errors
/// See [`Error`].
pub async fn install(client: &mut Client, lanes: &[Lane]) -> Result<Installed, Error> {
    install_within(client, lanes, LOCK_TIMEOUT).await
}

/// The same, waiting so long for the install lock, and again for the tables.
///
/// # Errors
/// See [`Error`].
pub async fn install_within(client: &mut Client, lanes: &[Lane], limit: Duration) -> Result<Installed, Error> {
    let transaction = client.transaction().await.map_err(Error::Database)?;
    transaction.batch_execute(&script::prelude(limit)).await.map_err(refused)?;
    let mut lanes = [lanes, &catalogue::lanes(&transaction).await.map_err(Error::Database)?].concat();
    lanes.sort_unstable();
    lanes.dedup();
    // The script locks tables. Where there is nothing for it to do, nobody who works here is made to wait.
    if is_current(verify::verify_in(&transaction, &lanes).await)? {
        transaction.batch_execute(&script::check(&lanes)).await.map_err(refused)?;
        transaction.rollback().await.map_err(Error::Database)?;
        return Ok(Installed::AlreadyCurrent);
    }
    transaction.batch_execute(&script::body(&lanes, limit)).await.map_err(refused)?;
    transaction.commit().await.map_err(refused)?;
    let mut differences = verify(client, &lanes).await?;
    differences.retain(Difference::is_error);
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
    Refusal::of(error).map_or_else(Error::Database, Error::Refused)
}

/// The lanes that the database of `client` has, by what is in its catalogue.
///
/// # Errors
/// When the database cannot be asked.
pub async fn installed_lanes(client: &Client) -> Result<Vec<Lane>, tokio_postgres::Error> {
    catalogue::lanes(client).await
}
