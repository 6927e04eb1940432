//! Keeps the partitions of the ledger ahead of time.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;

use crate::error::ClaimError;
use crate::executor::Executor;

const EXTEND: &str = "\
    select created, indexed, partitions_ahead, open_since, skipped from symphony.extend_payment_ledger($1)";

/// What one call of `extend_payment_ledger` did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerExtension {
    /// The partitions that it added.
    pub created: Vec<String>,
    /// The partitions that it indexed for searches by participant.
    pub indexed: Vec<String>,
    /// How many partitions start in the future.
    pub partitions_ahead: i32,
    /// Where the last partition starts, which has no end.
    pub open_since: Option<Timestamp>,
    /// What was put off, and why.
    pub skipped: Option<String>,
}

/// Adds the partitions of the ledger that are missing, or indexes one that no completion writes to any more. It reads at
/// most `max_scan_mb` of a partition.
///
/// # Errors
///
/// See [`ClaimError`]. A lock that was not free is no error: see [`LedgerExtension::skipped`].
pub async fn extend_ledger(client: &impl Executor, max_scan_mb: i32) -> Result<LedgerExtension, ClaimError> {
    let row = client.fetch_one(EXTEND, &[(&max_scan_mb, Type::INT4)]).await?;
    Ok(LedgerExtension {
        created: row.try_get("created")?,
        indexed: row.try_get("indexed")?,
        partitions_ahead: row.try_get("partitions_ahead")?,
        open_since: row.try_get("open_since")?,
        skipped: row.try_get("skipped")?,
    })
}
