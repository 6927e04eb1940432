//! The desk where outcomes are handed in: gathered for a moment, recorded together, and tried again while their leases last.
//!
//! The first outcome at an idle desk goes at once; those that come while a call is under way gather, until it is answered or there are as many as one
//! call takes: two calls at once that are half full cost more than one. A call that hangs does not hold up the rest for longer than a moment, since a few may
//! be under way. A call that is refused as a whole is taken apart, so that one bad row
//! cannot take the others down.
//!
//! It decides what goes when; it calls nobody.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::lane::Done;
use crate::trace::TraceId;

/// The most that goes in one call.
const TOGETHER: usize = 500;
/// The most calls that are under way.
const ABREAST: usize = 4;
/// How long a call may take before others stop waiting for it.
const PATIENCE: Duration = Duration::from_millis(100);

/// An outcome on its way into the ledger.
#[derive(Debug)]
pub(crate) struct Entry<L, O> {
    pub(crate) done: Arc<Done<L, O>>,
    pub(crate) route: Arc<str>,
    /// When its lease is over, at the latest.
    pub(crate) until: Instant,
    /// The trace of its dispatch, where spans are drawn.
    pub(crate) trace_id: Option<TraceId>,
}

/// Outcomes that are not recorded yet.
#[derive(Debug)]
pub(crate) struct Desk<L, O> {
    gather: Duration,
    /// So many wait for no more, unless a call is under way.
    together: usize,
    gathered: VecDeque<Entry<L, O>>,
    /// When the first of those came.
    since: Option<Instant>,
    /// Those that were refused in company and go alone now.
    alone: VecDeque<Entry<L, O>>,
    under_way: usize,
    sent: Option<Instant>,
    not_before: Option<Instant>,
    pub(crate) backoff: Backoff,
}

impl<L, O> Desk<L, O> {
    /// A desk that gathers for so long, or until so many have come: no more than [`TOGETHER`].
    pub(crate) fn new(gather: Duration, together: usize) -> Self {
        Self {
            gather,
            together: together.min(TOGETHER),
            gathered: VecDeque::new(),
            since: None,
            alone: VecDeque::new(),
            under_way: 0,
            sent: None,
            not_before: None,
            backoff: Backoff::new(Duration::from_millis(50), Duration::from_secs(2)),
        }
    }

    /// An outcome is handed in.
    pub(crate) fn hand_in(&mut self, entry: Entry<L, O>, now: Instant) {
        self.since.get_or_insert(now);
        self.gathered.push_back(entry);
    }

    /// Takes out what nobody can record any more.
    pub(crate) fn expired(&mut self, now: Instant) -> Vec<Entry<L, O>> {
        let mut expired = Vec::new();
        for queue in [&mut self.gathered, &mut self.alone] {
            if queue.iter().any(|entry| entry.until <= now) {
                let (over, live): (VecDeque<_>, VecDeque<_>) =
                    std::mem::take(queue).into_iter().partition(|entry| entry.until <= now);
                *queue = live;
                expired.extend(over);
            }
        }
        if self.gathered.is_empty() {
            self.since = None;
        }
        expired
    }

    /// What to record now; taken as sent.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Vec<Entry<L, O>>> {
        if self.due_at().is_none_or(|at| at > now) {
            return None;
        }
        let batch: Vec<_> = match self.alone.pop_front() {
            Some(entry) => vec![entry],
            None => self.gathered.drain(..self.gathered.len().min(TOGETHER)).collect(),
        };
        if self.gathered.is_empty() {
            self.since = None;
        }
        self.under_way += 1;
        self.sent = Some(now);
        Some(batch)
    }

    /// When there is something to do next, if nothing else happens.
    pub(crate) fn next(&self) -> Option<Instant> {
        let over = self.gathered.iter().chain(&self.alone).map(|entry| entry.until).min();
        [self.due_at(), over].into_iter().flatten().min()
    }

    fn due_at(&self) -> Option<Instant> {
        if self.under_way >= ABREAST {
            return None;
        }
        let at = if !self.alone.is_empty() || self.gathered.len() >= TOGETHER {
            self.since.or(self.sent)?
        } else {
            let since = self.since?;
            match self.sent {
                Some(sent) if self.under_way > 0 => since.max(sent + PATIENCE),
                // Idle for as long as it gathers: there is nobody to wait for.
                Some(sent) if self.gathered.len() < self.together => {
                    since.max(sent + self.gather).min(since + self.gather)
                }
                _ => since,
            }
        };
        Some(self.not_before.map_or(at, |not_before| at.max(not_before)))
    }

    /// A call was answered.
    pub(crate) fn answered(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        self.not_before = None;
    }

    /// A call brought no answer: these go again, before those that came later.
    pub(crate) fn again(&mut self, entries: Vec<Entry<L, O>>, now: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        self.not_before = Some(now + self.backoff.failed());
        self.since.get_or_insert(now);
        for entry in entries.into_iter().rev() {
            self.gathered.push_front(entry);
        }
    }

    /// A call was refused as a whole: each goes alone.
    pub(crate) fn one_by_one(&mut self, entries: Vec<Entry<L, O>>) {
        self.under_way = self.under_way.saturating_sub(1);
        self.alone.extend(entries);
    }

    /// Whether everything is recorded or given up.
    pub(crate) fn is_empty(&self) -> bool {
        self.under_way == 0 && self.gathered.is_empty() && self.alone.is_empty()
    }
}
