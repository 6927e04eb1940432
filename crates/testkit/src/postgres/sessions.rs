//! Terminates the sessions of a database.

use tokio_postgres::{Client, Error};

/// Terminates the other sessions of this database, waits until they have ended, and returns how many there were.
pub(crate) async fn terminate(admin: &Client, database: &str) -> Result<u64, Error> {
    // The timeout of one minute is for a heavily loaded machine.
    let statement = "select pg_terminate_backend(pid, 60000)
                     from pg_stat_activity
                     where datname = $1 and pid <> pg_backend_pid() and backend_type = 'client backend'";
    let ended = admin.query(statement, &[&database]).await?;
    Ok(ended.iter().filter(|row| row.get(0)).count().try_into().unwrap_or(u64::MAX))
}
