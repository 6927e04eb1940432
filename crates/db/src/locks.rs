//! Sessions that wait for a lock on a table of ours, for gauges and logs.

use tokio_postgres::GenericClient;

use crate::error::DatabaseError;

const LONGEST_WAIT: &str = "\
    select waiting_seconds, waiting_pid, waiting_application, blocking_pid, blocking_application, table_name \
    from symphony.longest_lock_wait()";

/// A session that waits for a lock.
#[derive(Clone, Debug, PartialEq)]
pub struct LockWait {
    /// For how long.
    pub seconds: f64,
    /// The process id of its server process.
    pub waiting_pid: i32,
    /// The name that its client gave.
    pub waiting_application: String,
    /// The process id of a session that it waits for; 0 for a prepared transaction.
    pub blocking_pid: i32,
    /// The name that this session's client gave.
    pub blocking_application: String,
    /// The table.
    pub table_name: String,
}

/// The longest wait for a lock on a table of ours; none if no session waits.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn longest_wait(client: &impl GenericClient) -> Result<Option<LockWait>, DatabaseError> {
    let rows = client.query_typed(LONGEST_WAIT, &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(LockWait {
        seconds: row.try_get("waiting_seconds")?,
        waiting_pid: row.try_get("waiting_pid")?,
        waiting_application: row.try_get("waiting_application")?,
        blocking_pid: row.try_get("blocking_pid")?,
        blocking_application: row.try_get("blocking_application")?,
        table_name: row.try_get("table_name")?,
    }))
}
