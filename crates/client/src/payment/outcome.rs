//! What became of a payment, for its producer.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::Serialize;

use crate::OutboxId;

/// The state of a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
#[non_exhaustive]
pub enum PaymentState {
    /// It has not ended: it waits for an attempt, or a worker holds a lease on it.
    Pending,
    /// The rail accepted it.
    Dispatched,
    /// It failed terminally, or was cancelled. With [`outcome_unknown`](PaymentOutcome::outcome_unknown) it may have been made.
    Failed,
    /// It has ended, and its ledger rows were archived.
    Archived,
}

impl PaymentState {
    /// The word of the database.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Dispatched => "DISPATCHED",
            Self::Failed => "FAILED",
            Self::Archived => "ARCHIVED",
        }
    }
}

impl fmt::Display for PaymentState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A state that this version of the crate does not know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a state of a payment that this version knows")]
pub struct UnknownState(String);

impl FromStr for PaymentState {
    type Err = UnknownState;

    fn from_str(text: &str) -> Result<Self, UnknownState> {
        let all = [Self::Pending, Self::Dispatched, Self::Failed, Self::Archived];
        all.into_iter().find(|state| state.as_str() == text).ok_or_else(|| UnknownState(text.to_owned()))
    }
}

/// What became of a payment: of the newest outbox of its idempotency key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PaymentOutcome {
    /// Its outbox; of a payment that was redriven, the newest.
    pub outbox_id: OutboxId,
    /// Its state.
    pub state: PaymentState,
    /// The attempts so far.
    pub attempts: i32,
    /// Whether it may have been made, although its state does not say so. After it has failed, see
    /// [`resolution`](Self::resolution).
    pub outcome_unknown: bool,
    /// The error code of the last attempt; `CANCELLED` for a payment that was never sent.
    pub error_code: Option<String>,
    /// The rail's own code of the last attempt.
    pub rail_code: Option<String>,
    /// The rail's own reference of the payment.
    pub rail_reference: Option<String>,
    /// What an operator found out about a failure: `PAID`, `NOT_PAID` or `SKIPPED`.
    pub resolution: Option<String>,
    /// When it was enqueued, by the database's clock.
    pub created_at: Timestamp,
    /// When its last attempt ended.
    pub last_attempt_at: Option<Timestamp>,
    /// When its next attempt may begin; none after its end and while a worker holds a lease on it.
    pub next_attempt_at: Option<Timestamp>,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
}

/// A payment that was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Cancelled {
    /// Its outbox.
    pub outbox_id: OutboxId,
    /// When it was cancelled, by the database's clock.
    pub cancelled_at: Timestamp,
}
