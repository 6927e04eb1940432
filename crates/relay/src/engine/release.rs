//! The release of leases whose dispatch was not started.

use tokio::time::Instant;

use crate::call_backoff::CallBackoff;

/// Leases to release, each with its expiry: an expired lease needs no release.
#[derive(Debug)]
pub(super) struct Releases<K> {
    waiting: Vec<(K, Instant)>,
    in_flight: bool,
    not_before: Option<Instant>,
    pub(super) backoff: CallBackoff,
}

impl<K> Releases<K> {
    pub(super) fn new() -> Self {
        Self { waiting: Vec::new(), in_flight: false, not_before: None, backoff: CallBackoff::with_defaults() }
    }

    pub(super) fn push(&mut self, lease: K, until: Instant) {
        self.waiting.push((lease, until));
    }

    /// Removes the leases that have expired.
    pub(super) fn take_expired(&mut self, now: Instant) -> Vec<K> {
        self.waiting.extract_if(.., |(_, until)| *until <= now).map(|(lease, _)| lease).collect()
    }

    /// The leases to release now, if any. The caller must send them: they count as a call in flight.
    pub(super) fn take_due(&mut self, now: Instant) -> Option<Vec<(K, Instant)>> {
        let must_wait = self.in_flight || self.not_before.is_some_and(|at| at > now);
        if must_wait || self.waiting.is_empty() {
            return None;
        }
        self.in_flight = true;
        Some(std::mem::take(&mut self.waiting))
    }

    pub(super) fn call_returned(&mut self) {
        (self.in_flight, self.not_before) = (false, None);
    }

    /// The call failed without an answer: it is retried.
    pub(super) fn retry(&mut self, leases: Vec<(K, Instant)>, now: Instant) {
        self.in_flight = false;
        self.not_before = Some(now + self.backoff.failed());
        self.waiting.extend(leases);
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        if self.in_flight { None } else { self.not_before.filter(|_| !self.waiting.is_empty()) }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty() && !self.in_flight
    }
}
