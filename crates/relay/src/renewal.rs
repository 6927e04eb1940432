//! Lease renewal (heartbeat): which leases to renew, and which dispatches to cancel because their lease is about to
//! expire.
//!
//! All running leases are renewed in one call as soon as the oldest is a third of its term old (`Term::renewed_after`): three calls per
//! term, however many dispatches run. A dispatch whose lease was not renewed by a margin before its expiry must be
//! cancelled, since another worker may claim its row soon.
//!
//! The engine (`engine/state.rs`) sends the call, which ends in `schema/functions/payment/renew_outbox_leases.sql`. Only
//! payments have leases that can be renewed; claims of events and metadata have a fixed term.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use crate::call_backoff::CallBackoff;
use crate::lease::Term;

/// The leases of running dispatches, by when they were granted or renewed last.
#[derive(Debug)]
pub(crate) struct Renewal<K> {
    term: Term,
    margin: Duration,
    granted: HashMap<K, Instant>,
    /// No lease is older. The one that was as old may have ended: the oldest is looked up only when it may be due,
    /// because to look it up at each step took a tenth of the CPU of a relayer that drains a backlog.
    none_before: Option<Instant>,
    in_flight: bool,
    not_before: Option<Instant>,
    pub(crate) backoff: CallBackoff,
}

impl<K: Copy + Ord + Hash> Renewal<K> {
    pub(crate) fn new(term: Term, margin: Duration) -> Self {
        // Several attempts must fit between the first third and the margin.
        let backoff = CallBackoff::new(Duration::from_millis(250), term.length() / 12);
        Self {
            term,
            margin,
            granted: HashMap::new(),
            none_before: None,
            in_flight: false,
            not_before: None,
            backoff,
        }
    }

    /// A dispatch started, under a lease whose claim was sent at `sent`.
    pub(crate) fn started(&mut self, key: K, sent: Instant) {
        self.granted.insert(key, sent);
        self.none_before = Some(self.none_before.map_or(sent, |oldest| oldest.min(sent)));
    }

    /// A dispatch ended.
    pub(crate) fn ended(&mut self, key: K) {
        self.granted.remove(&key);
        if self.granted.is_empty() {
            self.none_before = None;
        }
    }

    /// All running dispatches, if their leases are due for renewal. The caller must send it: it counts as a call in
    /// flight.
    pub(crate) fn take_due(&mut self, now: Instant) -> Option<Vec<K>> {
        if self.due_at().is_none_or(|at| at > now) {
            return None;
        }
        self.find_oldest();
        if self.due_at().is_none_or(|at| at > now) {
            return None;
        }
        self.in_flight = true;
        Some(sorted(self.granted.keys().copied()))
    }

    /// A renewal sent at `sent` succeeded for these leases: each lasts a full term from then.
    pub(crate) fn renewed(&mut self, held: &[K], sent: Instant) {
        self.in_flight = false;
        self.not_before = None;
        for key in held {
            if let Some(granted) = self.granted.get_mut(key) {
                *granted = (*granted).max(sent);
            }
        }
        self.find_oldest();
    }

    /// A renewal failed and is retried after a backoff.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.in_flight = false;
        self.not_before = Some(now + self.backoff.failed());
    }

    /// The dispatches to cancel.
    pub(crate) fn overdue(&mut self, now: Instant) -> Vec<K> {
        if self.none_before.is_none_or(|oldest| self.cutoff(oldest) > now) {
            return Vec::new();
        }
        self.find_oldest();
        sorted(self.granted.iter().filter(|(_, granted)| self.cutoff(**granted) <= now).map(|(key, _)| *key))
    }

    /// When a renewal or a cancellation may be due, if nothing else happens.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let cutoff = self.none_before.map(|oldest| self.cutoff(oldest));
        [self.due_at(), cutoff].into_iter().flatten().min()
    }

    fn due_at(&self) -> Option<Instant> {
        if self.in_flight {
            return None;
        }
        let oldest = self.none_before? + self.term.renewed_after()?;
        Some(self.not_before.map_or(oldest, |not_before| oldest.max(not_before)))
    }

    fn find_oldest(&mut self) {
        self.none_before = self.granted.values().min().copied();
    }

    fn cutoff(&self, granted: Instant) -> Instant {
        granted + self.term.length().saturating_sub(self.margin)
    }
}

/// In a fixed order, so that a run can be repeated.
fn sorted<K: Ord>(keys: impl Iterator<Item = K>) -> Vec<K> {
    let mut keys: Vec<_> = keys.collect();
    keys.sort_unstable();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn all_are_renewed_when_the_oldest_is_a_third_of_its_term_old() {
        let (mut renewal, t) = (Renewal::new(Term::Renewable(30 * S), 3 * S), Instant::now());
        renewal.started(1, t);
        renewal.started(2, t + 9 * S);
        assert_eq!((renewal.take_due(t + 9 * S), renewal.next_deadline()), (None, Some(t + 10 * S)));
        assert_eq!(renewal.take_due(t + 10 * S).map(|keys| keys.len()), Some(2));
        assert_eq!(renewal.take_due(t + 11 * S), None, "one is in flight");
        renewal.renewed(&[1, 2], t + 10 * S);
        assert_eq!(renewal.next_deadline(), Some(t + 20 * S));
    }

    #[test]
    fn a_lease_that_is_not_renewed_is_overdue_a_margin_before_its_expiry() {
        let (mut renewal, t) = (Renewal::new(Term::Renewable(30 * S), 3 * S), Instant::now());
        renewal.started(1, t);
        renewal.take_due(t + 10 * S);
        renewal.failed(t + 15 * S);
        assert!(renewal.overdue(t + 26 * S).is_empty());
        assert_eq!(renewal.overdue(t + 27 * S), [1]);
    }

    #[test]
    fn a_younger_lease_is_neither_renewed_nor_overdue_when_an_older_one_would_be() {
        let (mut renewal, t) = (Renewal::new(Term::Renewable(30 * S), 3 * S), Instant::now());
        renewal.started(1, t);
        renewal.started(2, t + 9 * S);
        renewal.ended(1);
        assert_eq!((renewal.take_due(t + 10 * S), renewal.next_deadline()), (None, Some(t + 19 * S)));
        renewal.started(3, t + 8 * S);
        renewal.ended(3);
        assert!(renewal.overdue(t + 35 * S).is_empty());
        assert_eq!(renewal.next_deadline(), Some(t + 19 * S));
        assert_eq!(renewal.overdue(t + 36 * S), [2]);
        renewal.ended(2);
        assert_eq!((renewal.take_due(t + 60 * S), renewal.next_deadline()), (None, None));
    }

    #[test]
    fn a_fixed_lease_is_never_renewed_and_becomes_overdue() {
        let (mut renewal, t) = (Renewal::new(Term::Fixed(30 * S), 3 * S), Instant::now());
        renewal.started(1, t);
        assert_eq!((renewal.take_due(t + 29 * S), renewal.next_deadline()), (None, Some(t + 27 * S)));
    }
}
