//! The backlog of the metadata lane, with counts that stop at a limit, and its recent throughput and latency.

use serde::Serialize;
use tokio_postgres::GenericClient;

use crate::error::DatabaseError;
use crate::lane_stats::LaneStats;

// An age may be a float, because it is only displayed.
const BACKLOG: &str = "\
    select due, processing, stuck, scheduled, dlq, oldest_pending_age_seconds::float8, \
           oldest_due_age_seconds::float8, more_due, more_processing, more_stuck, more_scheduled, more_dlq \
    from symphony.metadata_backlog()";
const RECENT_STATS: &str = "\
    select done, failed, span_seconds, took_p50_ms, took_p95_ms, took_p99_ms, total_p50_ms, total_p95_ms \
    from symphony.metadata_recent_stats()";

/// The entries that are not published.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct MetadataBacklog {
    /// Entries that are due.
    pub due: i64,
    /// Entries under a claim of at most 5 minutes.
    pub processing: i64,
    /// Entries under an older claim or without retries left, which the next repair requeues or moves to the DLQ.
    pub stuck: i64,
    /// Entries whose retry is due later.
    pub scheduled: i64,
    /// Entries in the DLQ.
    pub dlq: i64,
    /// The age of the oldest entry that is not terminal, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due entry has been due.
    pub oldest_due_age_seconds: f64,
    /// Whether the count of due entries reached its limit, 10,000 new ones and 10,000 retries: it is a lower bound.
    pub more_due: bool,
    /// Whether the count of processing entries reached its limit of 10,000.
    pub more_processing: bool,
    /// Whether the count of stuck entries reached its limit of 10,000.
    pub more_stuck: bool,
    /// Whether the count of scheduled entries reached its limit of 10,000.
    pub more_scheduled: bool,
    /// Whether the count of entries in the DLQ reached its limit of 10,000.
    pub more_dlq: bool,
}

/// Counts the entries that are not published.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn backlog(client: &impl GenericClient) -> Result<MetadataBacklog, DatabaseError> {
    let row = client.query_typed_one(BACKLOG, &[]).await?;
    Ok(MetadataBacklog {
        due: row.try_get("due")?,
        processing: row.try_get("processing")?,
        stuck: row.try_get("stuck")?,
        scheduled: row.try_get("scheduled")?,
        dlq: row.try_get("dlq")?,
        oldest_pending_age_seconds: row.try_get("oldest_pending_age_seconds")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        more_due: row.try_get("more_due")?,
        more_processing: row.try_get("more_processing")?,
        more_stuck: row.try_get("more_stuck")?,
        more_scheduled: row.try_get("more_scheduled")?,
        more_dlq: row.try_get("more_dlq")?,
    })
}

/// Statistics of the latest entries that were published or moved to the DLQ: at most 5000 of each, of the last 15
/// minutes.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn recent_stats(client: &impl GenericClient) -> Result<LaneStats, DatabaseError> {
    let row = client.query_typed_one(RECENT_STATS, &[]).await?;
    Ok(LaneStats::from_row(&row, row.try_get("failed")?, None)?)
}
