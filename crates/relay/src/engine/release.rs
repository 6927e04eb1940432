//! Leases that are given back because their dispatch never began.

use tokio::time::Instant;

use crate::backoff::Backoff;

/// Leases to give back, each with its end: after that there is nothing to give.
#[derive(Debug)]
pub(super) struct Releases<K> {
    waiting: Vec<(K, Instant)>,
    under_way: bool,
    not_before: Option<Instant>,
    pub(super) backoff: Backoff,
}

impl<K> Releases<K> {
    pub(super) fn new() -> Self {
        Self { waiting: Vec::new(), under_way: false, not_before: None, backoff: Backoff::of_calls() }
    }

    pub(super) fn give_back(&mut self, lease: K, until: Instant) {
        self.waiting.push((lease, until));
    }

    /// Takes out those that are over.
    pub(super) fn expired(&mut self, now: Instant) -> Vec<K> {
        self.waiting.extract_if(.., |(_, until)| *until <= now).map(|(lease, _)| lease).collect()
    }

    /// What to give back now; taken as sent.
    pub(super) fn due(&mut self, now: Instant) -> Option<Vec<(K, Instant)>> {
        let waits = self.under_way || self.not_before.is_some_and(|at| at > now);
        if waits || self.waiting.is_empty() {
            return None;
        }
        self.under_way = true;
        Some(std::mem::take(&mut self.waiting))
    }

    pub(super) fn answered(&mut self) {
        (self.under_way, self.not_before) = (false, None);
    }

    /// No answer came: these go again.
    pub(super) fn again(&mut self, leases: Vec<(K, Instant)>, now: Instant) {
        self.under_way = false;
        self.not_before = Some(now + self.backoff.failed());
        self.waiting.extend(leases);
    }

    pub(super) fn next(&self) -> Option<Instant> {
        if self.under_way { None } else { self.not_before.filter(|_| !self.waiting.is_empty()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.under_way
    }
}
