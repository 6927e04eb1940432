//! The outcome of an attempt, as a worker reports it and as the database records it.
//!
//! The two can differ: after the rail's `max_attempts` the database records a retryable attempt as FAILED.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::AttemptState;
use crate::{LeaseToken, OutboxId};

/// The error code of an unknown outcome: the payment may have been made.
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";
/// The error code of a payment that the rail has accepted and not executed yet: it is inquired about, and never sent again.
pub const AWAITING_CONFIRMATION: &str = "AWAITING_CONFIRMATION";

/// The exclusive right to dispatch one outbox until the lease expires.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// The fencing token.
    pub token: LeaseToken,
}

/// The rail's answer, as it is recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RailAnswer {
    /// Its own reference for the payment.
    pub reference: Option<String>,
    /// Its own result code.
    pub code: Option<String>,
}

/// The error of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// The error code, such as [`OUTCOME_UNKNOWN`].
    pub code: String,
    /// The error message, without personal data.
    pub message: Option<String>,
}

/// The outcome of an attempt. Only the database records an expired lease, so there is no variant for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rail accepted it. This is terminal.
    Dispatched {
        /// The rail's answer.
        rail: RailAnswer,
    },
    /// It failed terminally, and moves to the dead-letter queue.
    Failed {
        /// The error.
        reason: Reason,
        /// The rail's answer.
        rail: RailAnswer,
    },
    /// It failed temporarily. It is retried after a backoff, or moves to the dead-letter queue after `max_attempts`.
    Retryable {
        /// The error.
        reason: Reason,
        /// The rail's answer.
        rail: RailAnswer,
        /// The delay that the rail asked for, rounded up to whole seconds; none means the backoff of the rail policy.
        delay: Option<Duration>,
    },
}

impl Outcome {
    /// The state to record.
    pub fn state(&self) -> AttemptState {
        match self {
            Self::Dispatched { .. } => AttemptState::Dispatched,
            Self::Failed { .. } => AttemptState::Failed,
            Self::Retryable { .. } => AttemptState::Retryable,
        }
    }

    /// The rail's answer.
    pub fn rail(&self) -> &RailAnswer {
        match self {
            Self::Dispatched { rail } | Self::Failed { rail, .. } | Self::Retryable { rail, .. } => rail,
        }
    }

    /// The error, if there is one.
    pub fn reason(&self) -> Option<&Reason> {
        match self {
            Self::Dispatched { .. } => None,
            Self::Failed { reason, .. } | Self::Retryable { reason, .. } => Some(reason),
        }
    }

    /// The delay that the rail asked for.
    pub fn delay(&self) -> Option<Duration> {
        match self {
            Self::Dispatched { .. } | Self::Failed { .. } => None,
            Self::Retryable { delay, .. } => *delay,
        }
    }
}

/// The outcome of one attempt, with its lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The lease.
    pub lease: Lease,
    /// The outcome.
    pub outcome: Outcome,
    /// The latency of the rail.
    pub latency: Option<Duration>,
}

/// What the database recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Completed {
    /// The number of the attempt, from 1.
    pub attempt_no: i32,
    /// The recorded state: FAILED for a retryable outcome after `max_attempts`.
    pub state: AttemptState,
    /// When it is due again; none in a terminal state.
    pub next_attempt_at: Option<Timestamp>,
}
