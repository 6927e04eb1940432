//! The interface of a payment rail: validate a payment, send it, and answer inquiries about it.
//!
//! A rail decides nothing about retries, leases or unknown outcomes: it reports what it knows, and the payment lane
//! derives the outcome. The one thing it must never do is guess. What it is not sure of is
//! [`Answer::Unknown`].

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use symphony_outbox::OutboxId;
use symphony_outbox::payment::{Payload, RailAnswer, Reason};

/// A future that a rail hands out, since rails are chosen at run time.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A payment as a rail sees it.
#[derive(Clone, Debug)]
pub struct Payment {
    /// The outbox, for logs.
    pub outbox_id: OutboxId,
    /// The order to pay.
    pub instruction_id: String,
    /// The party whose instructions are sequenced.
    pub participant_id: String,
    /// Its place in the order of that participant.
    pub sequence_id: i64,
    /// The name under which the rail must not pay twice: the same on every attempt.
    pub idempotency_key: String,
    /// The name of the rail.
    pub rail_type: String,
    /// What is to be paid.
    pub payload: Payload,
    /// Attempts before this one.
    pub attempt_count: i32,
}

/// How a dispatch ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The rail has taken it and says so.
    Accepted(RailAnswer),
    /// The rail has refused it for good. Nothing was paid.
    Refused {
        /// Why.
        reason: Reason,
        /// What the rail said.
        rail: RailAnswer,
    },
    /// Nothing was paid, and it may be tried again: it never left, or the rail said "later".
    Later {
        /// Why.
        reason: Reason,
        /// What the rail said.
        rail: RailAnswer,
        /// When to try again, if the rail said so.
        after: Option<Duration>,
    },
    /// It may have been paid. It must not be sent again on a guess.
    Unknown {
        /// What is known, for people; the lane sets the code.
        message: String,
        /// What the rail said.
        rail: RailAnswer,
        /// Whether the rail rejected this request for what it is, such as its size. The rail works: other payments go on.
        row_only: bool,
    },
}

/// What a rail says became of an idempotency key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inquiry {
    /// It was paid under this key.
    Executed(RailAnswer),
    /// It was refused for good under this key. Nothing was paid.
    Refused {
        /// Why.
        reason: Reason,
        /// What the rail said.
        rail: RailAnswer,
    },
    /// The rail has never seen this key. That holds only as long as the rail remembers keys.
    NeverSeen,
    /// The rail works and knows no end yet: still under way.
    Undecided {
        /// What is known, for people.
        message: String,
        /// What the rail said.
        rail: RailAnswer,
    },
    /// The rail would not say, or could not be reached: an error, a timeout.
    Unsaid {
        /// What is known, for people.
        message: String,
        /// What the rail said.
        rail: RailAnswer,
    },
}

/// Why a payload must not be sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Invalid {
    /// Which field is wrong and what it should be; never the value itself, which may be personal.
    pub message: String,
}

/// A payment rail.
pub trait Rail: Send + Sync + 'static {
    /// Checks a payment before anything leaves. Quick, and without IO.
    ///
    /// # Errors
    ///
    /// What is wrong, for people.
    fn validate(&self, payment: &Payment) -> Result<(), Invalid>;

    /// Sends a payment once. Never sends it a second time by itself.
    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer>;

    /// How long one sending may take at the most.
    fn timeout(&self) -> Duration;

    /// Whether this rail can be asked what became of a key.
    fn can_be_asked(&self) -> bool;

    /// Asks what became of a payment's key. Never pays.
    fn inquire<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Inquiry>;
}
