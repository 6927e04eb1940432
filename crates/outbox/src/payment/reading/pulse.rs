//! What was done lately, from the end of the ledger.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Json;

use crate::error::Fault;
use crate::pulse::LanePulse;

const PULSE: &str = "select attempts, span_seconds, lane, rails, workers, parts from symphony.payment_pulse()";

/// The latest attempts: at most five thousand, of the last quarter of an hour.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Pulse {
    /// How many.
    pub attempts: i64,
    /// The time that they span until now.
    pub span_seconds: f64,
    /// The same over all rails.
    pub lane: LanePulse,
    /// The same by rail.
    pub rails: Vec<RailPulse>,
    /// Who made them, who was heard of last first; at most a hundred.
    pub workers: Vec<WorkerPulse>,
    /// The span in thirty equal parts, the oldest first.
    pub parts: Vec<Part>,
}

/// The latest attempts of one rail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct RailPulse {
    /// Its name.
    pub rail_type: String,
    /// How many.
    pub attempts: i64,
    /// Those that the rail took.
    pub dispatched: i64,
    /// Those that failed for good.
    pub failed: i64,
    /// Those that are tried again.
    pub retryable: i64,
    /// Those whose worker was not heard of again.
    pub zombies: i64,
    /// How long the rail took, in the middle.
    pub latency_p50_ms: Option<i32>,
    /// How long the rail took, but for the slowest twentieth.
    pub latency_p95_ms: Option<i32>,
    /// How long the rail took, but for the slowest hundredth.
    pub latency_p99_ms: Option<i32>,
    /// From the enqueue to the end of what was dispatched, in the middle.
    pub total_p50_ms: Option<i64>,
    /// From the enqueue to the end of what was dispatched, but for the slowest twentieth.
    pub total_p95_ms: Option<i64>,
}

/// The latest attempts of one worker.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct WorkerPulse {
    /// Its name.
    pub worker_id: String,
    /// How many.
    pub attempts: i64,
    /// When it last recorded one.
    pub last_completed_at: Timestamp,
}

/// The attempts of one part of the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Part {
    /// Those that the rail took.
    pub dispatched: i64,
    /// Those that failed for good.
    pub failed: i64,
    /// Those that are tried again.
    pub again: i64,
}

/// The same over all rails, as the database has it.
#[derive(Deserialize)]
struct Lane {
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

impl Lane {
    fn over(self, span_seconds: f64) -> LanePulse {
        LanePulse {
            span_seconds,
            done: self.dispatched,
            failed: self.failed,
            again: Some(self.retryable + self.zombies),
            took_p50_ms: self.latency_p50_ms,
            took_p95_ms: self.latency_p95_ms,
            took_p99_ms: self.latency_p99_ms,
            total_p50_ms: self.total_p50_ms,
            total_p95_ms: self.total_p95_ms,
        }
    }
}

/// What was done lately.
///
/// # Errors
///
/// See [`Fault`].
pub async fn pulse(client: &impl GenericClient) -> Result<Pulse, Fault> {
    let row = client.query_typed_one(PULSE, &[]).await?;
    let span_seconds = row.try_get("span_seconds")?;
    let Json(lane): Json<Lane> = row.try_get("lane")?;
    Ok(Pulse {
        attempts: row.try_get("attempts")?,
        span_seconds,
        lane: lane.over(span_seconds),
        rails: row.try_get::<_, Json<_>>("rails")?.0,
        workers: row.try_get::<_, Json<_>>("workers")?.0,
        parts: row.try_get::<_, Json<_>>("parts")?.0,
    })
}
