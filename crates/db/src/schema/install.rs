//! Runs the install script, unless the database is already current.

use std::time::Duration;

use tokio_postgres::Client;

use super::{
    Lane, catalogue,
    guard::Refusal,
    lock::LOCK_TIMEOUT,
    script,
    verify::{self, Difference, verify},
};

/// The result of an install.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The schema was created or upgraded.
    Applied,
    /// The database already matched this build: nothing was changed, and no table was locked.
    AlreadyCurrent,
}

/// Why the install failed. Nothing was changed, except with [`Error::Differs`].
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database refused, for a reason that a DBA can remove: a missing privilege, a newer schema, an old server, a
    /// lock of another session, or another owner's objects in Symphony's schemas.
    #[error(transparent)]
    Refused(Refusal),
    /// The script was committed, but the database still differs from this build.
    #[error("installed, but the database differs from this build in {}: {}", differences.len(), differences[0])]
    Differs {
        /// What differs.
        differences: Vec<Difference>,
    },
    /// The connection or a statement failed.
    #[error("a database query failed")]
    Database(#[source] tokio_postgres::Error),
    /// The catalogue could not be read.
    #[error(transparent)]
    Verify(#[from] verify::Error),
}

/// Installs or upgrades `lanes` in the database of `client`, in one transaction under an advisory lock. Upgrades the
/// lanes that the database already has, too. Waits [`LOCK_TIMEOUT`] for a lock.
///
/// # Errors
/// See [`Error`].
pub async fn install(client: &mut Client, lanes: &[Lane]) -> Result<Installed, Error> {
    install_within(client, lanes, LOCK_TIMEOUT).await
}

/// The same with another timeout, for the install lock and again for the tables.
///
/// # Errors
/// See [`Error`].
pub async fn install_within(client: &mut Client, lanes: &[Lane], limit: Duration) -> Result<Installed, Error> {
    let transaction = client.transaction().await.map_err(Error::Database)?;
    transaction.batch_execute(&script::prelude(limit)).await.map_err(refused)?;
    let mut lanes = [lanes, &catalogue::lanes(&transaction).await.map_err(Error::Database)?].concat();
    lanes.sort_unstable();
    lanes.dedup();
    // The script locks tables. A database that is current needs no lock, and no relayer or producer has to wait.
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

/// Creates the roles that the server does not have, and nothing else. A dump needs them before it is restored.
///
/// # Errors
/// [`Error::Refused`] without CREATEROLE, or [`Error::Database`].
pub async fn create_roles(client: &Client) -> Result<(), Error> {
    client.batch_execute(&script::roles_script()).await.map_err(refused)
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

/// The lanes that are installed in the database of `client`, according to its system catalogue.
///
/// # Errors
/// If the query fails.
pub async fn installed_lanes(client: &Client) -> Result<Vec<Lane>, tokio_postgres::Error> {
    catalogue::lanes(client).await
}
