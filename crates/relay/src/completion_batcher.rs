//! Batches completions: decides when outcomes are written to the database, how many per call, and when a call is
//! retried.
//!
//! While no call is in flight, the first outcome is flushed at once. Outcomes that arrive during a call wait until it
//! returns or a batch is full, because two half-full calls cost more than one. A call that hangs delays the others by
//! [`SLOW_CALL`] at most, since up to [`MAX_CALLS_IN_FLIGHT`] may run. If the database refuses a whole batch, its
//! rows are sent one by one, so that one invalid row cannot block the others. Retries end when the lease does.
//!
//! The batcher makes no calls and reads no clock.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::call_backoff::CallBackoff;
use crate::lane::Completion;
use crate::simulation::{PlantedBug, is_planted};
use crate::trace::TraceId;

/// The maximum number of rows per call.
const MAX_BATCH: usize = 500;
/// The maximum number of calls in flight.
const MAX_CALLS_IN_FLIGHT: usize = 4;
/// How long a call may take before the next batch is sent without waiting for it.
const SLOW_CALL: Duration = Duration::from_millis(100);

/// An outcome that is not recorded yet.
#[derive(Debug)]
pub(crate) struct PendingCompletion<L, O> {
    pub(crate) completion: Arc<Completion<L, O>>,
    pub(crate) route: Arc<str>,
    /// When its lease expires, at the latest.
    pub(crate) until: Instant,
    /// The trace of its dispatch, if traces are exported.
    pub(crate) trace_id: Option<TraceId>,
}

/// The outcomes that are not recorded yet, and the calls in flight that record them.
#[derive(Debug)]
pub(crate) struct CompletionBatcher<L, O> {
    flush_interval: Duration,
    /// A batch of this size is flushed before the interval ends, unless a call is in flight.
    max_batch: usize,
    queued: VecDeque<PendingCompletion<L, O>>,
    /// When the oldest of `queued` arrived.
    since: Option<Instant>,
    /// Rows of refused batches, each to be sent in a separate call.
    singles: VecDeque<PendingCompletion<L, O>>,
    in_flight: usize,
    sent: Option<Instant>,
    not_before: Option<Instant>,
    pub(crate) backoff: CallBackoff,
}

impl<L, O> CompletionBatcher<L, O> {
    /// Flushes after `flush_interval`, or as soon as `max_batch` outcomes (up to [`MAX_BATCH`]) are queued.
    pub(crate) fn new(flush_interval: Duration, max_batch: usize) -> Self {
        Self {
            flush_interval,
            max_batch: max_batch.min(MAX_BATCH),
            queued: VecDeque::new(),
            since: None,
            singles: VecDeque::new(),
            in_flight: 0,
            sent: None,
            not_before: None,
            backoff: CallBackoff::new(Duration::from_millis(50), Duration::from_secs(2)),
        }
    }

    /// Queues an outcome.
    pub(crate) fn push(&mut self, pending: PendingCompletion<L, O>, now: Instant) {
        self.since.get_or_insert(now);
        self.queued.push_back(pending);
    }

    /// Removes the outcomes whose lease has expired: the database would refuse them.
    pub(crate) fn take_expired(&mut self, now: Instant) -> Vec<PendingCompletion<L, O>> {
        let mut expired = Vec::new();
        if is_planted(PlantedBug::CompletionAfterExpiry) {
            return expired;
        }
        for queue in [&mut self.queued, &mut self.singles] {
            if queue.iter().any(|pending| pending.until <= now) {
                let (over, live): (VecDeque<_>, VecDeque<_>) =
                    std::mem::take(queue).into_iter().partition(|pending| pending.until <= now);
                *queue = live;
                expired.extend(over);
            }
        }
        if self.queued.is_empty() {
            self.since = None;
        }
        expired
    }

    /// The next batch, if one is due. The caller must send it: it counts as a call in flight.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Vec<PendingCompletion<L, O>>> {
        if self.due_at().is_none_or(|at| at > now) {
            return None;
        }
        let batch: Vec<_> = match self.singles.pop_front() {
            Some(pending) => vec![pending],
            None => self.queued.drain(..self.queued.len().min(MAX_BATCH)).collect(),
        };
        if self.queued.is_empty() {
            self.since = None;
        }
        self.in_flight += 1;
        self.sent = Some(now);
        Some(batch)
    }

    /// When a batch is due or a lease expires, if nothing else happens.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let expiry = self.queued.iter().chain(&self.singles).map(|pending| pending.until).min();
        [self.due_at(), expiry].into_iter().flatten().min()
    }

    fn due_at(&self) -> Option<Instant> {
        if self.in_flight >= MAX_CALLS_IN_FLIGHT {
            return None;
        }
        let at = if !self.singles.is_empty() || self.queued.len() >= MAX_BATCH {
            self.since.or(self.sent)?
        } else {
            let since = self.since?;
            match self.sent {
                Some(sent) if self.in_flight > 0 => since.max(sent + SLOW_CALL),
                // After an idle flush interval there is no burst to batch: flush at once.
                Some(sent) if self.queued.len() < self.max_batch => {
                    since.max(sent + self.flush_interval).min(since + self.flush_interval)
                }
                _ => since,
            }
        };
        Some(self.not_before.map_or(at, |not_before| at.max(not_before)))
    }

    /// A call returned.
    pub(crate) fn call_returned(&mut self) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.not_before = None;
    }

    /// A call failed without an answer: its rows are sent again, before those that came later.
    pub(crate) fn retry(&mut self, batch: Vec<PendingCompletion<L, O>>, now: Instant) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.not_before = Some(now + self.backoff.failed());
        self.since.get_or_insert(now);
        for pending in batch.into_iter().rev() {
            self.queued.push_front(pending);
        }
    }

    /// The database refused a whole batch: its rows are sent one by one.
    pub(crate) fn split(&mut self, batch: Vec<PendingCompletion<L, O>>) {
        self.in_flight = self.in_flight.saturating_sub(1);
        self.singles.extend(batch);
    }

    /// Whether no outcome is queued and no call is in flight.
    pub(crate) fn is_empty(&self) -> bool {
        self.in_flight == 0 && self.queued.is_empty() && self.singles.is_empty()
    }
}
