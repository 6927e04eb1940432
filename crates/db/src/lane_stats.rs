//! Recent throughput and latency of a lane.

use serde::{Deserialize, Serialize};
use tokio_postgres::Row;

/// What a lane did in a recent span of time that ends now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct LaneStats {
    /// The length of the span.
    pub span_seconds: f64,
    /// Payments dispatched, or events or metadata entries published.
    pub done: i64,
    /// Rows that failed terminally.
    pub failed: i64,
    /// Attempts that are followed by a retry; none if the lane does not record them.
    #[serde(rename = "again")]
    pub retried: Option<i64>,
    /// Median time from claim to completion of what is done; for payments, the latency of the rail.
    #[serde(rename = "took_p50_ms")]
    pub latency_p50_ms: Option<i64>,
    /// 95th percentile of the same.
    #[serde(rename = "took_p95_ms")]
    pub latency_p95_ms: Option<i64>,
    /// 99th percentile of the same.
    #[serde(rename = "took_p99_ms")]
    pub latency_p99_ms: Option<i64>,
    /// Median time from enqueue to completion of what is done.
    pub total_p50_ms: Option<i64>,
    /// 95th percentile of the same.
    pub total_p95_ms: Option<i64>,
}

impl LaneStats {
    /// Rows done per second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate for display")]
        let done = self.done as f64;
        done / self.span_seconds.max(1.0)
    }

    /// Reads the columns that the event lane and the metadata lane share.
    pub(crate) fn from_row(row: &Row, failed: i64, retried: Option<i64>) -> Result<Self, tokio_postgres::Error> {
        Ok(Self {
            span_seconds: row.try_get("span_seconds")?,
            done: row.try_get("done")?,
            failed,
            retried,
            latency_p50_ms: row.try_get("took_p50_ms")?,
            latency_p95_ms: row.try_get("took_p95_ms")?,
            latency_p99_ms: row.try_get("took_p99_ms")?,
            total_p50_ms: row.try_get("total_p50_ms")?,
            total_p95_ms: row.try_get("total_p95_ms")?,
        })
    }
}
