//! Sessions that wait for a lock on a table of ours, and those that hold the one for which no session waits long, for gauges and
//! logs.

use tokio_postgres::GenericClient;

use crate::error::DatabaseError;

const LONGEST_WAIT: &str = "\
    select waiting_seconds, waiting_pid, waiting_application, blocking_pid, blocking_application, table_name \
    from symphony.longest_lock_wait()";

const RAIL_POLICY_HOLDERS: &str = "\
    select pid, application, transaction_key \
    from symphony.rail_policy_lock_holders()";

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

/// A transaction that holds the policies of the rails, as each claim and completion does for a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RailPolicyHolder {
    /// The process id of its session; 0 for a prepared transaction.
    pub pid: i32,
    /// The name that its client gave.
    pub application: String,
    /// Identifies the transaction until the server ends: found again, it is still open.
    pub transaction_key: String,
}

/// The transactions that keep a rail from being changed and an epoch from being opened. Needs the payment lane.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn rail_policy_holders(client: &impl GenericClient) -> Result<Vec<RailPolicyHolder>, DatabaseError> {
    let rows = client.query_typed(RAIL_POLICY_HOLDERS, &[]).await?;
    let holder = |row: &tokio_postgres::Row| {
        Ok(RailPolicyHolder {
            pid: row.try_get("pid")?,
            application: row.try_get("application")?,
            transaction_key: row.try_get("transaction_key")?,
        })
    };
    rows.iter().map(holder).collect()
}
