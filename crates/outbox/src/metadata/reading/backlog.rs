//! How many entries are not published, and how the lane went lately: neither counts what is published.

use serde::Serialize;
use tokio_postgres::GenericClient;

use crate::error::Fault;
use crate::pulse::LanePulse;

const BACKLOG: &str = "\
    select due, processing, stuck, scheduled, dlq, oldest_pending_age_seconds, oldest_due_age_seconds, more \
    from symphony.metadata_backlog()";
const PULSE: &str = "\
    select done, failed, span_seconds, took_p50_ms, took_p95_ms, took_p99_ms, total_p50_ms, total_p95_ms \
    from symphony.metadata_pulse()";

/// What is not published.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct MetadataBacklog {
    /// Entries that the next claim may take.
    pub due: i64,
    /// Entries under a claim that is not older than 5 minutes.
    pub processing: i64,
    /// Entries under an older claim, or without retries left, which the next repair ends.
    pub stuck: i64,
    /// Entries that failed and whose time has not come again.
    pub scheduled: i64,
    /// Entries that were given up.
    pub dlq: i64,
    /// How long ago the oldest entry that has not ended was created, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the entry that could be taken longest could be so.
    pub oldest_due_age_seconds: f64,
    /// Whether there may be more: ten thousand are counted of each kind.
    pub more: bool,
}

/// What is not published now.
///
/// # Errors
///
/// See [`Fault`].
pub async fn backlog(client: &impl GenericClient) -> Result<MetadataBacklog, Fault> {
    let row = client.query_typed_one(BACKLOG, &[]).await?;
    Ok(MetadataBacklog {
        due: row.try_get("due")?,
        processing: row.try_get("processing")?,
        stuck: row.try_get("stuck")?,
        scheduled: row.try_get("scheduled")?,
        dlq: row.try_get("dlq")?,
        oldest_pending_age_seconds: row.try_get("oldest_pending_age_seconds")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        more: row.try_get("more")?,
    })
}

/// What was published and what died lately: at most five thousand of each, of the last quarter of an hour.
///
/// # Errors
///
/// See [`Fault`].
pub async fn pulse(client: &impl GenericClient) -> Result<LanePulse, Fault> {
    let row = client.query_typed_one(PULSE, &[]).await?;
    Ok(LanePulse {
        span_seconds: row.try_get("span_seconds")?,
        done: row.try_get("done")?,
        failed: row.try_get("failed")?,
        again: None,
        took_p50_ms: row.try_get("took_p50_ms")?,
        took_p95_ms: row.try_get("took_p95_ms")?,
        took_p99_ms: row.try_get("took_p99_ms")?,
        total_p50_ms: row.try_get("total_p50_ms")?,
        total_p95_ms: row.try_get("total_p95_ms")?,
    })
}
