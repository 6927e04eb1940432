//! Runs the install script, if there is anything for it to do.

use tokio_postgres::{Client, error::SqlState};

use super::{Lane, catalogue, script, verify};

/// What an install did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The schema was created, or brought to what this build carries.
    Applied,
    /// The database was what this build carries already: nothing was touched and nobody waited.
    AlreadyCurrent,
}

/// Why nothing was installed. Nothing was changed.
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
    /// The script ran, but the database is still not what it should be.
    #[error("installed, but the database differs from this build in {}: {}", differences.len(), differences[0])]
    Differs {
        /// What differs.
        differences: Vec<verify::Difference>,
    },
    /// The connection or a statement failed.
    #[error("the database could not be asked")]
    Database(#[source] tokio_postgres::Error),
    /// The catalogue could not be read.
    #[error(transparent)]
    Verify(#[from] verify::Error),
}

/// Installs `lanes` into the database of `client`, or upgrades them, in one transaction under an advisory lock.
///
/// # Errors
/// See [`Error`]; whatever it is, the database is as it was.
pub async fn install(client: &mut Client, lanes: &[Lane]) -> Result<Installed, Error> {
    match verify(client, lanes).await {
        Ok(differences) if differences.is_empty() => return Ok(Installed::AlreadyCurrent),
        Ok(_) | Err(verify::Error::NotInstalled) => {}
        Err(error) => return Err(error.into()),
    }
    let outcome = client.batch_execute(&script(lanes)).await;
    if let Err(error) = outcome {
        // The script stopped inside of its transaction.
        let _ = client.batch_execute("rollback").await;
        return Err(refused(error));
    }
    let differences = verify(client, lanes).await?;
    if differences.is_empty() { Ok(Installed::Applied) } else { Err(Error::Differs { differences }) }
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
