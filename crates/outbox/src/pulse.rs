//! How a lane went lately: how much it did, and how long that took.

use serde::{Deserialize, Serialize};

/// What a lane did lately, until now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct LanePulse {
    /// The time that it spans.
    pub span_seconds: f64,
    /// What arrived: payments that were dispatched, events and entries of metadata that were published.
    pub done: i64,
    /// What failed for good.
    pub failed: i64,
    /// Attempts that are followed by another; none where the lane does not keep them.
    pub again: Option<i64>,
    /// From the claim to the end of what arrived, in the middle; for payments, how long the rail took.
    pub took_p50_ms: Option<i64>,
    /// The same, but for the slowest twentieth.
    pub took_p95_ms: Option<i64>,
    /// The same, but for the slowest hundredth.
    pub took_p99_ms: Option<i64>,
    /// From the commit to the end of what arrived, in the middle.
    pub total_p50_ms: Option<i64>,
    /// The same, but for the slowest twentieth.
    pub total_p95_ms: Option<i64>,
}

impl LanePulse {
    /// How much arrived in a second.
    #[must_use]
    pub fn rate(&self) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let done = self.done as f64;
        done / self.span_seconds.max(1.0)
    }
}
