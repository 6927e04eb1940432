//! What each session sees while others hold transactions open, and whether its next call would have to wait for one.
//!
//! A transaction's changes are kept apart until it commits; the locks it holds keep everybody else from what it
//! changed. Where it is not worth knowing exactly which rows a transaction has locked, more is taken for locked than
//! is: then a call that would have gone through is left out, and nothing wrong is expected.

use std::collections::{BTreeMap, BTreeSet};

use super::call::{Call, Instruction, LeaseRef};
use super::reference::{Micros, Outbox, OutboxNo, State};

/// How many sessions there are. Any of them may make any call.
pub(crate) const SESSIONS: usize = 3;

/// The locks of a transaction.
#[derive(Clone, Debug, Default)]
struct Locks {
    keys: BTreeSet<usize>,
    participants: BTreeSet<usize>,
    rows: BTreeSet<OutboxNo>,
    /// Streams of ordered rails in which rows may have been parked or unparked.
    streams: BTreeSet<(usize, usize)>,
    /// A claim holds the in-flight counters of limited rails.
    seats: bool,
    policy_shared: bool,
    policy_alone: bool,
}

/// A transaction that is open.
#[derive(Clone, Debug)]
struct Transaction {
    now: Micros,
    changes: State,
    locks: Locks,
}

/// The committed state and the open transactions.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) committed: State,
    open: BTreeMap<usize, Transaction>,
}

impl Model {
    /// What a session sees: what is committed, and on top of it its own.
    pub(crate) fn seen_by(&self, session: usize) -> State {
        let mut state = self.committed.clone();
        if let Some(transaction) = self.open.get(&session) {
            state.overlay(&transaction.changes);
        }
        state
    }

    pub(crate) fn is_open(&self, session: usize) -> bool {
        self.open.contains_key(&session)
    }

    pub(crate) fn open_sessions(&self) -> Vec<usize> {
        self.open.keys().copied().collect()
    }

    /// The time that a session's open transaction goes by.
    pub(crate) fn transaction_time(&self, session: usize) -> Option<Micros> {
        self.open.get(&session).map(|transaction| transaction.now)
    }

    pub(crate) fn begin(&mut self, session: usize, now: Micros) {
        self.open.insert(session, Transaction { now, changes: State::default(), locks: Locks::default() });
    }

    pub(crate) fn commit(&mut self, session: usize) {
        if let Some(transaction) = self.open.remove(&session) {
            self.committed.overlay(&transaction.changes);
        }
    }

    pub(crate) fn roll_back(&mut self, session: usize) {
        self.open.remove(&session);
    }

    /// A session saw one state before its call and another after it: keeps the difference, and the locks.
    pub(crate) fn changed(&mut self, session: usize, call: &Call, before: &State, after: &State) {
        let changes = after.difference(before);
        let Some(transaction) = self.open.get_mut(&session) else {
            self.committed.overlay(&changes);
            return;
        };
        transaction.locks.take(call, before, &changes, transaction.now);
        transaction.changes.overlay(&changes);
    }

    /// The rows that others have locked.
    pub(crate) fn locked_for(&self, session: usize) -> BTreeSet<OutboxNo> {
        self.others(session).flat_map(|other| other.locks.rows.iter().copied()).collect()
    }

    fn others(&self, session: usize) -> impl Iterator<Item = &Transaction> {
        self.open.iter().filter(move |(other, _)| **other != session).map(|(_, transaction)| transaction)
    }

    /// Whether a call would wait, or might, for a transaction of another session.
    pub(crate) fn would_wait(&self, session: usize, call: &Call, now: Micros) -> bool {
        let seen = self.seen_by(session);
        self.others(session).any(|other| other.locks.stop(call, &seen, now.max(other.now)))
    }
}

impl Locks {
    /// Takes the locks of a call that changed something.
    fn take(&mut self, call: &Call, before: &State, changes: &State, now: Micros) {
        match call {
            Call::Enqueue { given, .. } => self.keys.extend(given.iter().map(|instruction| instruction.key)),
            Call::Redrive(no) | Call::Resolve(no, _) => {
                self.keys.extend(before.outboxes.get(no).map(|outbox| outbox.what.key));
            }
            Call::SetRail(..) => {
                self.policy_alone = true;
                self.streams.extend(before.ordered_streams());
            }
            Call::Pause(_) | Call::Resume(_) => self.policy_alone = true,
            Call::Claim { .. } => {
                self.policy_shared = true;
                self.seats = true;
                self.streams.extend(before.ordered_streams());
            }
            Call::Complete { .. }
            | Call::Repair { .. }
            | Call::Expire(_)
            | Call::MakeDue(_)
            | Call::Miscount(_) => {
                self.policy_shared |= matches!(call, Call::Complete { .. } | Call::Repair { .. });
                let touched = changes.outboxes.values().filter(|outbox| before.ordered(outbox));
                self.streams.extend(touched.map(Outbox::stream));
            }
            Call::Begin | Call::Commit | Call::RollBack | Call::Renew { .. } | Call::Release { .. } => {}
        }
        let held: Vec<_> =
            call.shown().into_iter().filter(|(hold, worker)| before.holds(hold, worker, now)).collect();
        // A lease that lasts longer already is not changed by a renewal, and is locked all the same.
        self.rows.extend(held.iter().map(|(hold, _)| hold.outbox));
        self.participants.extend(changes.next_sequence.keys());
        self.rows.extend(changes.outboxes.keys());
    }

    /// Whether these locks block a call of another session.
    fn stop(&self, call: &Call, seen: &State, now: Micros) -> bool {
        let row = |no: &OutboxNo| {
            let in_stream = seen.outboxes.get(no).is_some_and(|outbox| self.streams.contains(&outbox.stream()));
            self.rows.contains(no) || in_stream
        };
        let any_row = |leases: &[LeaseRef]| leases.iter().any(|hold| row(&hold.outbox));
        let key = |no: &OutboxNo| seen.outboxes.get(no).is_some_and(|o| self.keys.contains(&o.what.key));
        let participant =
            |no: &OutboxNo| seen.outboxes.get(no).is_some_and(|o| self.participants.contains(&o.what.participant));
        match call {
            Call::Begin | Call::Commit | Call::RollBack => false,
            Call::Enqueue { given, .. } => given.iter().any(|given| self.stop_enqueue(given, seen)),
            Call::Claim { .. } => {
                let capped = seen.rails.values().any(|rail| rail.max_in_flight.is_some());
                self.policy_alone || self.seats && capped || self.stop_ending(seen, now)
            }
            Call::Repair { .. } => self.policy_alone || self.stop_ending(seen, now),
            Call::Complete { outcomes, .. } => {
                self.policy_alone || outcomes.iter().any(|outcome| row(&outcome.hold.outbox))
            }
            Call::Renew { leases, .. } | Call::Release { leases, .. } => any_row(leases),
            Call::Redrive(no) => key(no) || participant(no),
            Call::Resolve(no, _) => key(no),
            // Parked rows are unparked when a rail becomes unordered.
            Call::SetRail(..) => self.policy_shared || self.policy_alone || !self.streams.is_empty(),
            Call::Pause(_) | Call::Resume(_) => self.policy_shared || self.policy_alone,
            Call::Expire(no) | Call::MakeDue(no) | Call::Miscount(no) => row(no),
        }
    }

    fn stop_enqueue(&self, given: &Instruction, seen: &State) -> bool {
        let needs_number = seen.of_key(given.key).is_none();
        self.keys.contains(&given.key) || needs_number && self.participants.contains(&given.participant)
    }

    /// Ending an expired lease unparks the rows behind it.
    fn stop_ending(&self, seen: &State, now: Micros) -> bool {
        seen.pending().any(|(_, o)| o.expired_lease(now).is_some() && self.streams.contains(&o.stream()))
    }
}

impl State {
    /// What is different here from how it was.
    fn difference(&self, before: &Self) -> Self {
        Self {
            rails: difference(&self.rails, &before.rails),
            next_sequence: difference(&self.next_sequence, &before.next_sequence),
            outboxes: difference(&self.outboxes, &before.outboxes),
            granted: difference(&self.granted, &before.granted),
            given_back: self.given_back.difference(&before.given_back).copied().collect(),
        }
    }

    fn overlay(&mut self, changes: &Self) {
        self.rails.extend(changes.rails.clone());
        self.next_sequence.extend(changes.next_sequence.clone());
        self.outboxes.extend(changes.outboxes.clone());
        self.granted.extend(changes.granted.clone());
        self.given_back.extend(&changes.given_back);
    }

    fn ordered_streams(&self) -> BTreeSet<(usize, usize)> {
        self.pending().filter(|(_, outbox)| self.ordered(outbox)).map(|(_, outbox)| outbox.stream()).collect()
    }
}

fn difference<K: Ord + Clone, V: PartialEq + Clone>(
    after: &BTreeMap<K, V>,
    before: &BTreeMap<K, V>,
) -> BTreeMap<K, V> {
    let changed = after.iter().filter(|(key, value)| before.get(key) != Some(value));
    changed.map(|(key, value)| (key.clone(), value.clone())).collect()
}
