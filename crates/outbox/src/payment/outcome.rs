//! How an attempt ended, in the worker's words. Knows no driver, and not what the database makes of it: at the
//! rail's ceiling a retryable attempt is recorded as a failure.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;

use super::AttemptState;
use crate::{LeaseToken, OutboxId};

/// The error code by which a worker says that nobody knows whether the payment was made.
pub const OUTCOME_UNKNOWN: &str = "OUTCOME_UNKNOWN";

/// The right to dispatch one outbox, for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// The proof.
    pub token: LeaseToken,
}

/// What the rail itself said.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RailAnswer {
    /// Its own reference of the payment.
    pub reference: Option<String>,
    /// Its own code of the outcome.
    pub code: Option<String>,
}

/// What went wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// By a fixed word, such as [`OUTCOME_UNKNOWN`].
    pub code: String,
    /// In a sentence without personal data.
    pub message: Option<String>,
}

/// How an attempt ended. What is missing here, a worker cannot say: a lost lease is recorded by the database alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The rail took it. The outbox ends.
    Dispatched {
        /// What the rail said.
        rail: RailAnswer,
    },
    /// It failed for good. The outbox ends, and people see it.
    Failed {
        /// Why.
        reason: Reason,
        /// What the rail said.
        rail: RailAnswer,
    },
    /// It failed in a way that may pass. It is due again later, or ends as failed at the rail's last attempt.
    Retryable {
        /// Why.
        reason: Reason,
        /// What the rail said.
        rail: RailAnswer,
        /// When to try again, where the rail said so; rounded up to whole seconds. Else the rail's backoff decides.
        delay: Option<Duration>,
    },
}

impl Outcome {
    /// The state that it asks for.
    pub fn state(&self) -> AttemptState {
        match self {
            Self::Dispatched { .. } => AttemptState::Dispatched,
            Self::Failed { .. } => AttemptState::Failed,
            Self::Retryable { .. } => AttemptState::Retryable,
        }
    }

    /// What the rail said.
    pub fn rail(&self) -> &RailAnswer {
        match self {
            Self::Dispatched { rail } | Self::Failed { rail, .. } | Self::Retryable { rail, .. } => rail,
        }
    }

    /// What went wrong, if anything did.
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

/// The outcome of one attempt, with the lease that entitles to record it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The lease.
    pub lease: Lease,
    /// The outcome.
    pub outcome: Outcome,
    /// How long the rail took to answer.
    pub latency: Option<Duration>,
}

/// What the database recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Completed {
    /// The number of the attempt, from 1.
    pub attempt_no: i32,
    /// The state recorded: failed where a retryable outcome was the last one allowed.
    pub state: AttemptState,
    /// When it may be claimed again; none once it has ended.
    pub next_attempt_at: Option<Timestamp>,
}
