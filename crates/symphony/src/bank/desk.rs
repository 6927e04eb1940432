//! The desk where requests are dealt with: numbers, fault, delay, the book, the file, and only then a verdict.
//!
//! It knows no HTTP. What the book decides and the order in which that is written down come from one lock, so two
//! requests with one key cannot both be the first, and a verdict is given once its line is durable.

use std::{
    collections::{BTreeMap, HashMap, VecDeque},
    path::Path,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use jiff::Timestamp;

use super::{
    book::{Arrival, Book, Entry, Verdict},
    demand::Demand,
    fault::{self, Fault},
    journal::{self, Journal},
    orders::{self, Change},
    settings::Faults,
    wire::{Kind, Stats},
};

/// Where all requests of a bank end up.
pub(super) struct Desk {
    state: Mutex<State>,
    pub(super) journal: Journal,
}

struct State {
    book: Book,
    faults: Faults,
    /// Faults that were ordered for one key, next first.
    ordered: HashMap<String, VecDeque<Fault>>,
    second: Second,
}

/// What a request meets, and what it is told.
pub(super) struct Dealt {
    pub(super) fault: Fault,
    pub(super) verdict: Verdict,
    pub(super) retry_after: Duration,
}

/// The ledger cannot be written: nothing may be said any more.
#[derive(Debug)]
pub(super) struct Broken;

impl Desk {
    /// Opens the book on a file. Tells how many bytes of a half-written line were cut off.
    pub(super) fn open(ledger: Option<&Path>, faults: Faults) -> Result<(Self, u64), journal::Error> {
        let mut book = Book::default();
        let (journal, cut) = Journal::open(ledger, |line| match serde_json::from_slice::<Entry>(line) {
            Ok(entry) => {
                book.recall(&entry);
                true
            }
            Err(_) => false,
        })?;
        let second = Second { began: Instant::now(), payments: 0 };
        Ok((Self { state: Mutex::new(State { book, faults, ordered: HashMap::new(), second }), journal }, cut))
    }

    /// Deals with a payment.
    pub(super) async fn pay(&self, demand: Demand) -> Result<Dealt, Broken> {
        let (arrival, fault) = self.arrive(Kind::Payment, demand.key.clone()).await;
        self.deal(fault, |state| state.book.pay(arrival, demand, fault, &state.faults, Timestamp::now())).await
    }

    /// Deals with an inquiry.
    pub(super) async fn inquire(&self, key: String) -> Result<Dealt, Broken> {
        let (arrival, fault) = self.arrive(Kind::Inquiry, key).await;
        self.deal(fault, |state| state.book.inquire(arrival, fault, &state.faults, Timestamp::now())).await
    }

    /// The counts.
    pub(super) fn stats(&self) -> Stats {
        self.lock().book.stats().clone()
    }

    /// The faults as they are ordered, and the lists for single keys as far as they are not used up.
    pub(super) fn faults(&self) -> (Faults, BTreeMap<String, Vec<Fault>>) {
        let state = self.lock();
        let lists = state.ordered.iter().map(|(key, list)| (key.clone(), list.iter().copied().collect()));
        (state.faults.clone(), lists.collect())
    }

    /// Orders other faults, from the next request on.
    pub(super) fn order(&self, change: Change) -> Result<(), orders::Error> {
        let mut state = self.lock();
        let State { faults, ordered, .. } = &mut *state;
        change.apply(faults, ordered)
    }

    /// Numbers, fault and delay.
    async fn arrive(&self, kind: Kind, key: String) -> (Arrival, Fault) {
        let (arrival, fault, delay) = {
            let mut state = self.lock();
            let arrival = state.book.arrive(kind, key);
            let fault = state.meet(&arrival);
            let delay = fault::delay(&state.faults, kind, &arrival.key, arrival.key_ordinal);
            (arrival, fault, delay)
        };
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        (arrival, fault)
    }

    async fn deal(
        &self,
        fault: Fault,
        deal: impl FnOnce(&mut State) -> (Entry, Verdict),
    ) -> Result<Dealt, Broken> {
        let (ticket, verdict, retry_after) = {
            let mut state = self.lock();
            let (entry, verdict) = deal(&mut state);
            // An entry is made of texts and numbers, which JSON always takes.
            let line = serde_json::to_vec(&entry).map_err(|_| Broken)?;
            (self.journal.append(&line), verdict, state.faults.retry_after)
        };
        if !self.journal.durable(ticket).await {
            return Err(Broken);
        }
        Ok(Dealt { fault, verdict, retry_after })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic in here would be a bug in the book; to answer from it is still better than to hang.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// The fault of a request: what was ordered for its key, else what the limit or chance has for it.
    fn meet(&mut self, arrival: &Arrival) -> Fault {
        if let Some(list) = self.ordered.get_mut(&arrival.key) {
            let next = list.iter().position(|fault| fault.kind() == arrival.kind);
            if let Some(fault) = next.and_then(|at| list.remove(at)) {
                if list.is_empty() {
                    self.ordered.remove(&arrival.key);
                }
                return fault;
            }
        }
        if arrival.kind == Kind::Payment
            && let Some(limit) = self.faults.rate_limit
            && !self.second.admits(limit, Instant::now())
        {
            return Fault::RateLimit;
        }
        fault::drawn(&self.faults, arrival.kind, &arrival.key, arrival.key_ordinal)
    }
}

/// The second that runs, and the payments that it has admitted.
struct Second {
    began: Instant,
    payments: u64,
}

impl Second {
    fn admits(&mut self, limit: u64, now: Instant) -> bool {
        if now.duration_since(self.began) >= Duration::from_secs(1) {
            *self = Self { began: now, payments: 0 };
        }
        self.payments += 1;
        self.payments <= limit
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_admits_its_payments_and_the_next_one_as_many() {
        let start = Instant::now();
        let mut second = Second { began: start, payments: 0 };
        let mut admitted = |millis| second.admits(2, start + Duration::from_millis(millis));
        assert_eq!(
            [0, 1, 2, 999, 1000, 1001, 1002].map(&mut admitted),
            [true, true, false, false, true, true, false]
        );
    }
}
