//! What the bank remembers: which key was executed or refused, how often it came, and the counts.
//!
//! Pure: it is told the time and the fault, and says what is to be written down. It is rebuilt from what was
//! written, entry by entry, so a restart remembers what the last run had made durable. Every key stays in memory;
//! forgetting is a matter of which of them may be used.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    demand::Demand,
    fault::Fault,
    settings::{Faults, Forget},
    wire::{Kind, LedgerLine, Outcome, RequestLine, Stats, Status},
};

/// A line of the file: a request, and what it changed. One line, so that no crash can part the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Entry {
    pub(super) request: RequestLine,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) executed: Option<LedgerLine>,
    /// The code of a refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    /// Of the body that was executed or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<String>,
}

/// What a request is told.
pub(super) enum Verdict {
    /// What became of the key, and whether it had been said before.
    Status { status: Status, replay: bool },
    /// The key stands for another body.
    KeyReused,
    /// Nothing: the fault says it all.
    Nothing,
}

/// A request that came in and has its numbers.
#[derive(Clone, Debug)]
pub(super) struct Arrival {
    pub(super) ordinal: u64,
    pub(super) kind: Kind,
    pub(super) key: String,
    pub(super) key_ordinal: u64,
}

/// What is known under a key.
struct Known {
    fingerprint: String,
    /// The reference of what was executed, or the code of the refusal.
    ending: Result<String, String>,
    at: Timestamp,
    /// Its place among all keys that were remembered.
    place: u64,
    /// Whether it was ever executed, this time or before it was forgotten.
    ever_executed: bool,
}

/// How often a key came.
#[derive(Default)]
struct Seen {
    payments: u64,
    inquiries: u64,
}

#[derive(Default)]
pub(super) struct Book {
    known: HashMap<String, Known>,
    seen: HashMap<String, Seen>,
    ordinal: u64,
    places: u64,
    stats: Stats,
}

impl Book {
    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Gives a request its numbers.
    pub(super) fn arrive(&mut self, kind: Kind, key: String) -> Arrival {
        self.ordinal += 1;
        let seen = self.seen.entry(key.clone()).or_default();
        let count = match kind {
            Kind::Payment => &mut seen.payments,
            Kind::Inquiry => &mut seen.inquiries,
        };
        *count += 1;
        Arrival { ordinal: self.ordinal, kind, key_ordinal: *count, key }
    }

    /// Deals with a payment: executes it unless its key is remembered or the fault comes first.
    pub(super) fn pay(
        &mut self,
        arrival: Arrival,
        demand: Demand,
        fault: Fault,
        faults: &Faults,
        now: Timestamp,
    ) -> (Entry, Verdict) {
        if fault.comes_first() {
            return self.write(arrival, fault, Outcome::Nothing, now, Verdict::Nothing);
        }
        if let Some(known) = self.remembered(&arrival.key, faults.forget_after, now) {
            if known.fingerprint != demand.fingerprint {
                return self.write(arrival, fault, Outcome::KeyReused, now, Verdict::KeyReused);
            }
            let verdict = Verdict::Status { status: known.status(), replay: true };
            return self.write(arrival, fault, Outcome::Replayed, now, verdict);
        }
        let money = match (demand.money, fault) {
            (Err(code), _) => Err(code.to_owned()),
            (Ok(_), Fault::Refuse) => Err(faults.refuse_code.clone()),
            (Ok(money), _) => Ok(money),
        };
        let mut entry = Entry {
            request: line(arrival, fault, Outcome::Refused, now),
            executed: None,
            refused: None,
            fingerprint: Some(demand.fingerprint),
        };
        let status = match money {
            Ok(money) => {
                let ordinal = self.stats.executed + 1;
                let reference = format!("BNK-{ordinal:010}");
                entry.request.outcome = Outcome::Executed;
                entry.executed = Some(LedgerLine {
                    ordinal,
                    key: demand.key,
                    instruction_id: demand.instruction_id,
                    participant_id: demand.participant_id,
                    sequence_id: demand.sequence_id,
                    amount: money.amount,
                    currency: money.currency,
                    reference: reference.clone(),
                    executed_at: now,
                });
                Status::Executed { reference }
            }
            Err(code) => {
                entry.refused = Some(code.clone());
                Status::Refused { code }
            }
        };
        self.learn(&entry);
        (entry, Verdict::Status { status, replay: false })
    }

    /// Deals with an inquiry: says what is remembered.
    pub(super) fn inquire(
        &mut self,
        arrival: Arrival,
        fault: Fault,
        faults: &Faults,
        now: Timestamp,
    ) -> (Entry, Verdict) {
        if fault.comes_first() {
            return self.write(arrival, fault, Outcome::Nothing, now, Verdict::Nothing);
        }
        let known = self.remembered(&arrival.key, faults.forget_after, now).map(Known::status);
        let outcome = if known.is_some() { Outcome::Found } else { Outcome::UnknownKey };
        let verdict = Verdict::Status { status: known.unwrap_or(Status::UnknownKey), replay: false };
        self.write(arrival, fault, outcome, now, verdict)
    }

    /// Takes in an entry of an earlier run.
    pub(super) fn recall(&mut self, entry: &Entry) {
        let request = &entry.request;
        self.ordinal = self.ordinal.max(request.ordinal);
        let seen = self.seen.entry(request.key.clone()).or_default();
        let count = match request.kind {
            Kind::Payment => &mut seen.payments,
            Kind::Inquiry => &mut seen.inquiries,
        };
        *count = (*count).max(request.key_ordinal);
        self.learn(entry);
    }

    fn remembered(&self, key: &str, forget: Option<Forget>, now: Timestamp) -> Option<&Known> {
        self.known.get(key).filter(|known| match forget {
            None => true,
            Some(Forget::Age(age)) => {
                // A clock that was set back makes nothing old.
                let passed = now.as_millisecond().saturating_sub(known.at.as_millisecond());
                u128::try_from(passed).unwrap_or(0) < age.as_millis()
            }
            Some(Forget::Last(keys)) => self.places - known.place < keys,
        })
    }

    /// An entry that changes nothing but the counts.
    fn write(
        &mut self,
        arrival: Arrival,
        fault: Fault,
        outcome: Outcome,
        now: Timestamp,
        verdict: Verdict,
    ) -> (Entry, Verdict) {
        let request = line(arrival, fault, outcome, now);
        let entry = Entry { request, executed: None, refused: None, fingerprint: None };
        self.learn(&entry);
        (entry, verdict)
    }

    /// What every entry changes, be it new or of an earlier run.
    fn learn(&mut self, entry: &Entry) {
        let request = &entry.request;
        match request.kind {
            Kind::Payment => self.stats.payments += 1,
            Kind::Inquiry => self.stats.inquiries += 1,
        }
        *self.stats.faults.entry(request.fault).or_default() += 1;
        match request.outcome {
            Outcome::Executed => self.stats.executed += 1,
            Outcome::Refused => self.stats.refused += 1,
            Outcome::Replayed => self.stats.replayed += 1,
            Outcome::KeyReused => self.stats.key_reused += 1,
            Outcome::Nothing | Outcome::Found | Outcome::UnknownKey => {}
        }
        let ending = match (&entry.executed, &entry.refused) {
            (Some(executed), _) => Ok(executed.reference.clone()),
            (None, Some(code)) => Err(code.clone()),
            (None, None) => return,
        };
        let before = self.known.get(&request.key).is_some_and(|known| known.ever_executed);
        if before && ending.is_ok() {
            self.stats.executed_again += 1;
        }
        self.places += 1;
        let known = Known {
            fingerprint: entry.fingerprint.clone().unwrap_or_default(),
            ever_executed: before || ending.is_ok(),
            ending,
            at: request.at,
            place: self.places,
        };
        self.known.insert(request.key.clone(), known);
    }
}

impl Known {
    fn status(&self) -> Status {
        match &self.ending {
            Ok(reference) => Status::Executed { reference: reference.clone() },
            Err(code) => Status::Refused { code: code.clone() },
        }
    }
}

fn line(arrival: Arrival, fault: Fault, outcome: Outcome, at: Timestamp) -> RequestLine {
    let Arrival { ordinal, kind, key, key_ordinal } = arrival;
    RequestLine { ordinal, kind, key, key_ordinal, fault, outcome, at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pay(book: &mut Book, key: &str, amount: &str, second: i64, faults: &Faults) -> Entry {
        let body = format!(
            r#"{{"instruction_id":"I","participant_id":"P","sequence_id":1,"idempotency_key":"{key}","payload":{{"amount":"{amount}","currency":"EUR"}}}}"#
        );
        let arrival = book.arrive(Kind::Payment, key.to_owned());
        let demand = Demand::read(body.as_bytes()).unwrap();
        book.pay(arrival, demand, Fault::Ok, faults, Timestamp::from_second(second).unwrap()).0
    }

    fn forgetting(after: &str) -> Faults {
        Faults::default().changed([("forget_after", after)]).unwrap()
    }

    #[test]
    fn a_key_is_forgotten_at_its_age_and_executes_again() {
        let (mut book, faults) = (Book::default(), forgetting("30s"));
        let at = |book: &mut Book, second| pay(book, "K", "1", second, &faults).request.outcome;
        assert_eq!(at(&mut book, 1000), Outcome::Executed);
        assert_eq!(at(&mut book, 1029), Outcome::Replayed);
        // A repeat does not make it younger, and a clock that goes back not older.
        assert_eq!(at(&mut book, 900), Outcome::Replayed);
        assert_eq!(at(&mut book, 1030), Outcome::Executed);
        assert_eq!((book.stats().executed, book.stats().executed_again), (2, 1));
    }

    #[test]
    fn the_last_keys_are_remembered_and_no_more() {
        let (mut book, faults) = (Book::default(), forgetting("2keys"));
        let mut outcome = |key| pay(&mut book, key, "1", 1, &faults).request.outcome;
        assert_eq!(["A", "B", "A", "C", "B", "A"].map(&mut outcome), {
            use Outcome::{Executed, Replayed};
            [Executed, Executed, Replayed, Executed, Replayed, Executed]
        });
    }

    #[test]
    fn a_book_that_is_rebuilt_knows_what_the_first_one_knew() {
        let mut first = Book::default();
        let faults = Faults::default();
        let entries = [
            pay(&mut first, "A", "1", 1, &faults),
            pay(&mut first, "A", "1", 2, &faults),
            pay(&mut first, "A", "2", 3, &faults),
            pay(&mut first, "B", "0", 4, &faults),
        ];
        let outcomes = entries.clone().map(|entry| entry.request.outcome);
        assert_eq!(outcomes, [Outcome::Executed, Outcome::Replayed, Outcome::KeyReused, Outcome::Refused]);
        let mut second = Book::default();
        for entry in &entries {
            second.recall(entry);
        }
        assert_eq!(first.stats(), second.stats());
        for book in [&mut first, &mut second] {
            let next = pay(book, "A", "1", 5, &faults);
            assert_eq!((next.request.ordinal, next.request.key_ordinal), (5, 4));
            assert_eq!(next.request.outcome, Outcome::Replayed);
            assert_eq!(pay(book, "C", "1", 6, &faults).executed.unwrap().reference, "BNK-0000000002");
        }
    }
}
