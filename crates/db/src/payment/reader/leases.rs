//! The leases by worker and rail.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;

use crate::error::DatabaseError;

const LEASES: &str = "\
    select worker_id, rail_type, leases, expired, oldest_claimed_at, first_expires_at \
    from symphony.payment_leases()";

/// The leases of one worker on one rail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct WorkerLeases {
    /// The worker.
    pub worker_id: String,
    /// The rail.
    pub rail_type: String,
    /// The number of leases, including expired ones.
    pub leases: i64,
    /// How many of them have expired.
    pub expired: i64,
    /// When the oldest was claimed.
    pub oldest_claimed_at: Timestamp,
    /// When the first of them expires, or expired.
    pub first_expires_at: Timestamp,
}

/// The leases that are held, by worker and rail.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn leases(client: &impl GenericClient) -> Result<Vec<WorkerLeases>, DatabaseError> {
    let rows = client.query_typed(LEASES, &[]).await?;
    let held = |row: &tokio_postgres::Row| {
        Ok(WorkerLeases {
            worker_id: row.try_get("worker_id")?,
            rail_type: row.try_get("rail_type")?,
            leases: row.try_get("leases")?,
            expired: row.try_get("expired")?,
            oldest_claimed_at: row.try_get("oldest_claimed_at")?,
            first_expires_at: row.try_get("first_expires_at")?,
        })
    };
    rows.iter().map(held).collect()
}
