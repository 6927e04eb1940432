//! Which leases are due to be renewed, and which are too near their end to go on.
//!
//! All that run are renewed together as soon as the oldest grant is a third of its term old, so a process asks about
//! three times per term however much it carries. One that could not be renewed by a margin before its end has to be
//! cut off: its row may be somebody else's soon.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Duration;

use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::lease::Term;

/// The leases of running dispatches, by when they were granted or renewed last.
#[derive(Debug)]
pub(crate) struct Renewal<K> {
    term: Term,
    margin: Duration,
    granted: HashMap<K, Instant>,
    under_way: bool,
    not_before: Option<Instant>,
    pub(crate) backoff: Backoff,
}

impl<K: Copy + Eq + Hash> Renewal<K> {
    pub(crate) fn new(term: Term, margin: Duration) -> Self {
        // Several tries must fit between the first third and the margin.
        let backoff = Backoff::new(Duration::from_millis(250), term.length() / 12);
        Self { term, margin, granted: HashMap::new(), under_way: false, not_before: None, backoff }
    }

    /// A dispatch runs under a lease whose claim was sent then.
    pub(crate) fn started(&mut self, key: K, sent: Instant) {
        self.granted.insert(key, sent);
    }

    /// A dispatch runs no more.
    pub(crate) fn ended(&mut self, key: K) {
        self.granted.remove(&key);
    }

    /// All that run, if it is time to renew them; the renewal is taken as sent.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Vec<K>> {
        if self.due_at().is_none_or(|at| at > now) {
            return None;
        }
        self.under_way = true;
        Some(self.granted.keys().copied().collect())
    }

    /// An answer came, to a renewal sent then: these hold. Each lasts a term from when it was asked for.
    pub(crate) fn renewed(&mut self, held: &[K], sent: Instant) {
        self.under_way = false;
        self.not_before = None;
        for key in held {
            if let Some(granted) = self.granted.get_mut(key) {
                *granted = (*granted).max(sent);
            }
        }
    }

    /// No answer came. It is tried again after a while.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.under_way = false;
        self.not_before = Some(now + self.backoff.failed());
    }

    /// Those that may not go on.
    pub(crate) fn over(&self, now: Instant) -> Vec<K> {
        self.granted.iter().filter(|(_, granted)| self.cutoff(**granted) <= now).map(|(key, _)| *key).collect()
    }

    /// When there is something to do next.
    pub(crate) fn next(&self) -> Option<Instant> {
        let cutoff = self.granted.values().map(|granted| self.cutoff(*granted)).min();
        [self.due_at(), cutoff].into_iter().flatten().min()
    }

    fn due_at(&self) -> Option<Instant> {
        if self.under_way {
            return None;
        }
        let oldest = *self.granted.values().min()? + self.term.renewed_after()?;
        Some(self.not_before.map_or(oldest, |not_before| oldest.max(not_before)))
    }

    fn cutoff(&self, granted: Instant) -> Instant {
        granted + self.term.length().saturating_sub(self.margin)
    }
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
        assert_eq!((renewal.due(t + 9 * S), renewal.next()), (None, Some(t + 10 * S)));
        assert_eq!(renewal.due(t + 10 * S).map(|keys| keys.len()), Some(2));
        assert_eq!(renewal.due(t + 11 * S), None, "one is under way");
        renewal.renewed(&[1, 2], t + 10 * S);
        assert_eq!(renewal.next(), Some(t + 20 * S));
    }

    #[test]
    fn a_lease_that_is_not_renewed_is_over_a_margin_before_its_end() {
        let (mut renewal, t) = (Renewal::new(Term::Renewable(30 * S), 3 * S), Instant::now());
        renewal.started(1, t);
        renewal.due(t + 10 * S);
        renewal.failed(t + 15 * S);
        assert!(renewal.over(t + 26 * S).is_empty());
        assert_eq!(renewal.over(t + 27 * S), [1]);
    }

    #[test]
    fn a_fixed_lease_is_never_renewed_and_ends_all_the_same() {
        let (mut renewal, t) = (Renewal::new(Term::Fixed(30 * S), 3 * S), Instant::now());
        renewal.started(1, t);
        assert_eq!((renewal.due(t + 29 * S), renewal.next()), (None, Some(t + 27 * S)));
    }
}
