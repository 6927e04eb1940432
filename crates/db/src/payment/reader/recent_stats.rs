//! Throughput and latency of recent attempts, from the end of the ledger.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Json;

use crate::error::DatabaseError;
use crate::lane_stats::LaneStats;

const RECENT_STATS: &str =
    "select attempts, span_seconds, lane, rails, workers, parts from symphony.payment_recent_stats()";

/// Statistics of the latest attempts: at most 5000 of the last 15 minutes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct RecentStats {
    /// The number of attempts.
    pub attempts: i64,
    /// The length of the span that ends now.
    pub span_seconds: f64,
    /// The same over all rails.
    pub lane: LaneStats,
    /// The same by rail.
    pub rails: Vec<RailStats>,
    /// The same by worker, latest completion first; at most 100.
    pub workers: Vec<WorkerStats>,
    /// The span in 30 equal buckets, oldest first.
    #[serde(rename = "parts")]
    pub buckets: Vec<StatsBucket>,
}

/// The latest attempts of one rail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct RailStats {
    /// Its name.
    pub rail_type: String,
    /// The number of attempts.
    pub attempts: i64,
    /// Attempts that the rail accepted.
    pub dispatched: i64,
    /// Attempts that ended FAILED.
    pub failed: i64,
    /// Attempts that are followed by a retry.
    pub retryable: i64,
    /// Attempts whose lease expired.
    pub zombies: i64,
    /// Median latency of the rail.
    pub latency_p50_ms: Option<i32>,
    /// 95th percentile of the same.
    pub latency_p95_ms: Option<i32>,
    /// 99th percentile of the same.
    pub latency_p99_ms: Option<i32>,
    /// Median time from enqueue to completion of what was dispatched.
    pub total_p50_ms: Option<i64>,
    /// 95th percentile of the same.
    pub total_p95_ms: Option<i64>,
}

/// The latest attempts of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct WorkerStats {
    /// Its name.
    pub worker_id: String,
    /// The number of attempts.
    pub attempts: i64,
    /// When it last completed one.
    pub last_completed_at: Timestamp,
}

/// The attempts of one time bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct StatsBucket {
    /// Attempts that the rail accepted.
    pub dispatched: i64,
    /// Attempts that ended FAILED.
    pub failed: i64,
    /// Attempts that are followed by a retry.
    #[serde(rename = "again")]
    pub retried: i64,
}

/// The statistics over all rails, as the database returns them.
#[derive(Deserialize)]
struct LaneRow {
    dispatched: i64,
    failed: i64,
    retryable: i64,
    zombies: i64,
    latency_p50_ms: Option<i64>,
    latency_p95_ms: Option<i64>,
    latency_p99_ms: Option<i64>,
    total_p50_ms: Option<i64>,
    total_p95_ms: Option<i64>,
}

impl LaneRow {
    fn into_stats(self, span_seconds: f64) -> LaneStats {
        LaneStats {
            span_seconds,
            done: self.dispatched,
            failed: self.failed,
            retried: Some(self.retryable + self.zombies),
            latency_p50_ms: self.latency_p50_ms,
            latency_p95_ms: self.latency_p95_ms,
            latency_p99_ms: self.latency_p99_ms,
            total_p50_ms: self.total_p50_ms,
            total_p95_ms: self.total_p95_ms,
        }
    }
}

/// Reads the statistics.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn recent_stats(client: &impl GenericClient) -> Result<RecentStats, DatabaseError> {
    let row = client.query_typed_one(RECENT_STATS, &[]).await?;
    let span_seconds = row.try_get("span_seconds")?;
    let Json(lane): Json<LaneRow> = row.try_get("lane")?;
    Ok(RecentStats {
        attempts: row.try_get("attempts")?,
        span_seconds,
        lane: lane.into_stats(span_seconds),
        rails: row.try_get::<_, Json<_>>("rails")?.0,
        workers: row.try_get::<_, Json<_>>("workers")?.0,
        buckets: row.try_get::<_, Json<_>>("parts")?.0,
    })
}
