//! The demo's interface to a lane: settings for the relayers, progress during the load, an audit at the end.
//!
//! [`LoadGenerator`](super::load_generator::LoadGenerator) enqueues the rows of all lanes in the transaction of an
//! order. [`Lanes`](super::lanes::Lanes) holds all lanes.

use serde::Serialize;

use crate::failure::Failure;

/// A lane of the demo, with its destinations.
pub(super) trait Lane {
    /// The result of its audit.
    type Audit: AuditResult;

    /// The relayer's settings for this lane.
    fn settings(&self) -> String;

    /// Reads the lane's progress.
    async fn progress(&mut self) -> Result<LaneProgress, Failure>;

    /// Called after a relayer was killed. A lane whose claims last minutes expires them at once, and describes that.
    async fn relayer_killed(&mut self, worker: &str) -> Result<Option<String>, Failure>;

    /// Compares committed rows with the destinations, once every row is in a terminal state.
    async fn audit(&mut self) -> Result<Self::Audit, Failure>;
}

/// A line of the output: a name, a number and an explanation.
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) number: String,
    pub(super) more: String,
}

impl Row {
    pub(super) fn new(name: &'static str, number: impl ToString, more: impl Into<String>) -> Self {
        Self { name, number: number.to_string(), more: more.into() }
    }
}

/// The progress of one lane.
#[derive(Default)]
pub(super) struct LaneProgress {
    /// Rows that are not in a terminal state.
    pub(super) open: i64,
    /// For a terminal that can be redrawn.
    pub(super) rows: Vec<Row>,
    /// The same on one line.
    pub(super) line: String,
}

/// The result of an audit. It serializes as JSON, and [`AuditResult::section`] is its text.
pub(super) trait AuditResult: Serialize {
    fn holds(&self) -> bool;

    fn section(&self) -> AuditSection;
}

/// The text of an audit.
pub(super) struct AuditSection {
    /// What was compared with what.
    pub(super) title: &'static str,
    pub(super) rows: Vec<Row>,
    /// Violations: any of them makes the audit fail.
    pub(super) findings: Vec<String>,
    /// Unknown outcomes that an operator has to resolve.
    pub(super) notes: Vec<String>,
    /// The result on one line.
    pub(super) summary: String,
}
