//! What the bank remembers of each idempotency key: whether it was executed or refused, how often it came, and the
//! counts.
//!
//! Pure: it gets the time and the fault, and returns the ledger entry to write. A restart replays the ledger, so the
//! bank remembers what the last run made durable. Every key stays in memory; `forget_after` decides which of them still
//! count.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{
    fault::Fault,
    payment::Payment,
    settings::{Faults, Forget},
    wire::{Kind, LedgerLine, Outcome, RequestLine, Stats, Status},
};

/// One line of the ledger file: a request and what it changed, so that no crash can separate the two.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LedgerEntry {
    pub(super) request: RequestLine,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) executed: Option<LedgerLine>,
    /// The code of the refusal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) refused: Option<String>,
    /// The fingerprint of the body that was executed or refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<String>,
}

/// What a request results in.
pub(super) enum Decision {
    /// The status of the key, and whether this is an idempotent replay.
    Status { status: Status, replay: bool },
    /// The key was used with another body.
    KeyReused,
    /// No status: the fault came first.
    Nothing,
}

/// A request with its ordinal numbers.
#[derive(Clone, Debug)]
pub(super) struct NumberedRequest {
    pub(super) ordinal: u64,
    pub(super) kind: Kind,
    pub(super) key: String,
    pub(super) key_ordinal: u64,
}

/// What the bank remembers of a key.
struct KeyRecord {
    fingerprint: String,
    /// The reference of what was executed, or the code of the refusal.
    result: Result<String, String>,
    at: Timestamp,
    /// Its position among all remembered keys.
    position: u64,
    /// Whether it was ever executed, also before it was forgotten.
    ever_executed: bool,
}

/// The number of requests for a key.
#[derive(Default)]
struct RequestCounts {
    payments: u64,
    inquiries: u64,
}

#[derive(Default)]
pub(super) struct KeyStore {
    known: HashMap<String, KeyRecord>,
    seen: HashMap<String, RequestCounts>,
    ordinal: u64,
    positions: u64,
    stats: Stats,
}

impl KeyStore {
    pub(super) fn stats(&self) -> &Stats {
        &self.stats
    }

    /// Numbers a request.
    pub(super) fn number_request(&mut self, kind: Kind, key: String) -> NumberedRequest {
        self.ordinal += 1;
        self.stats.received += 1;
        let seen = self.seen.entry(key.clone()).or_default();
        let count = match kind {
            Kind::Payment => &mut seen.payments,
            Kind::Inquiry => &mut seen.inquiries,
        };
        *count += 1;
        NumberedRequest { ordinal: self.ordinal, kind, key_ordinal: *count, key }
    }

    /// Executes a payment unless its key is remembered or the fault comes first.
    pub(super) fn pay(
        &mut self,
        numbered: NumberedRequest,
        payment: Payment,
        fault: Fault,
        faults: &Faults,
        now: Timestamp,
    ) -> (LedgerEntry, Decision) {
        if fault.comes_first() {
            return self.write(numbered, fault, Outcome::Nothing, now, Decision::Nothing);
        }
        if let Some(known) = self.remembered(&numbered.key, faults.forget_after, now) {
            if known.fingerprint != payment.fingerprint {
                return self.write(numbered, fault, Outcome::KeyReused, now, Decision::KeyReused);
            }
            let decision = Decision::Status { status: known.status(), replay: true };
            return self.write(numbered, fault, Outcome::Replayed, now, decision);
        }
        let money = match (payment.money, fault) {
            (Err(code), _) => Err(code.to_owned()),
            (Ok(_), Fault::Refuse) => Err(faults.refuse_code.clone()),
            (Ok(money), _) => Ok(money),
        };
        let mut entry = LedgerEntry {
            request: line(numbered, fault, Outcome::Refused, now),
            executed: None,
            refused: None,
            fingerprint: Some(payment.fingerprint),
        };
        let status = match money {
            Ok(money) => {
                let ordinal = self.stats.executed + 1;
                let reference = format!("BNK-{ordinal:010}");
                entry.request.outcome = Outcome::Executed;
                entry.executed = Some(LedgerLine {
                    ordinal,
                    key: payment.key,
                    instruction_id: payment.instruction_id,
                    participant_id: payment.participant_id,
                    sequence_id: payment.sequence_id,
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
        self.apply(&entry);
        (entry, Decision::Status { status, replay: false })
    }

    /// Answers an inquiry with the remembered status.
    pub(super) fn inquire(
        &mut self,
        numbered: NumberedRequest,
        fault: Fault,
        faults: &Faults,
        now: Timestamp,
    ) -> (LedgerEntry, Decision) {
        if fault.comes_first() {
            return self.write(numbered, fault, Outcome::Nothing, now, Decision::Nothing);
        }
        let known = self.remembered(&numbered.key, faults.forget_after, now).map(KeyRecord::status);
        let outcome = if known.is_some() { Outcome::Found } else { Outcome::UnknownKey };
        let decision = Decision::Status { status: known.unwrap_or(Status::UnknownKey), replay: false };
        self.write(numbered, fault, outcome, now, decision)
    }

    /// Applies an entry of an earlier run.
    pub(super) fn replay(&mut self, entry: &LedgerEntry) {
        let request = &entry.request;
        self.ordinal = self.ordinal.max(request.ordinal);
        let seen = self.seen.entry(request.key.clone()).or_default();
        let count = match request.kind {
            Kind::Payment => &mut seen.payments,
            Kind::Inquiry => &mut seen.inquiries,
        };
        *count = (*count).max(request.key_ordinal);
        self.stats.received += 1;
        self.apply(entry);
    }

    fn remembered(&self, key: &str, forget: Option<Forget>, now: Timestamp) -> Option<&KeyRecord> {
        self.known.get(key).filter(|known| match forget {
            None => true,
            Some(Forget::Age(age)) => {
                // A clock that was set back ages no key.
                let passed = now.as_millisecond().saturating_sub(known.at.as_millisecond());
                u128::try_from(passed).unwrap_or(0) < age.as_millis()
            }
            Some(Forget::Last(keys)) => self.positions - known.position < keys,
        })
    }

    /// An entry that changes only the counts.
    fn write(
        &mut self,
        numbered: NumberedRequest,
        fault: Fault,
        outcome: Outcome,
        now: Timestamp,
        decision: Decision,
    ) -> (LedgerEntry, Decision) {
        let request = line(numbered, fault, outcome, now);
        let entry = LedgerEntry { request, executed: None, refused: None, fingerprint: None };
        self.apply(&entry);
        (entry, decision)
    }

    /// Applies an entry, new or replayed.
    fn apply(&mut self, entry: &LedgerEntry) {
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
        let result = match (&entry.executed, &entry.refused) {
            (Some(executed), _) => Ok(executed.reference.clone()),
            (None, Some(code)) => Err(code.clone()),
            (None, None) => return,
        };
        let before = self.known.get(&request.key).is_some_and(|known| known.ever_executed);
        if before && result.is_ok() {
            self.stats.executed_again += 1;
        }
        self.positions += 1;
        let known = KeyRecord {
            fingerprint: entry.fingerprint.clone().unwrap_or_default(),
            ever_executed: before || result.is_ok(),
            result,
            at: request.at,
            position: self.positions,
        };
        self.known.insert(request.key.clone(), known);
    }
}

impl KeyRecord {
    fn status(&self) -> Status {
        match &self.result {
            Ok(reference) => Status::Executed { reference: reference.clone() },
            Err(code) => Status::Refused { code: code.clone() },
        }
    }
}

fn line(numbered: NumberedRequest, fault: Fault, outcome: Outcome, at: Timestamp) -> RequestLine {
    let NumberedRequest { ordinal, kind, key, key_ordinal } = numbered;
    RequestLine { ordinal, kind, key, key_ordinal, fault, outcome, at }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pay(keys: &mut KeyStore, key: &str, amount: &str, second: i64, faults: &Faults) -> LedgerEntry {
        let body = format!(
            r#"{{"instruction_id":"I","participant_id":"P","sequence_id":1,"idempotency_key":"{key}","payload":{{"amount":"{amount}","currency":"EUR"}}}}"#
        );
        let numbered = keys.number_request(Kind::Payment, key.to_owned());
        let payment = Payment::read(body.as_bytes()).unwrap();
        keys.pay(numbered, payment, Fault::Ok, faults, Timestamp::from_second(second).unwrap()).0
    }

    fn forgetting(after: &str) -> Faults {
        Faults::default().changed([("forget_after", after)]).unwrap()
    }

    #[test]
    fn a_key_is_forgotten_at_its_age_and_executes_again() {
        let (mut keys, faults) = (KeyStore::default(), forgetting("30s"));
        let at = |keys: &mut KeyStore, second| pay(keys, "K", "1", second, &faults).request.outcome;
        assert_eq!(at(&mut keys, 1000), Outcome::Executed);
        assert_eq!(at(&mut keys, 1029), Outcome::Replayed);
        // A repeat does not make it younger, and a clock that goes back not older.
        assert_eq!(at(&mut keys, 900), Outcome::Replayed);
        assert_eq!(at(&mut keys, 1030), Outcome::Executed);
        assert_eq!((keys.stats().executed, keys.stats().executed_again), (2, 1));
    }

    #[test]
    fn only_the_last_keys_are_remembered() {
        let (mut keys, faults) = (KeyStore::default(), forgetting("2keys"));
        let mut outcome = |key| pay(&mut keys, key, "1", 1, &faults).request.outcome;
        assert_eq!(["A", "B", "A", "C", "B", "A"].map(&mut outcome), {
            use Outcome::{Executed, Replayed};
            [Executed, Executed, Replayed, Executed, Replayed, Executed]
        });
    }

    #[test]
    fn a_book_that_is_rebuilt_knows_what_the_first_one_knew() {
        let mut first = KeyStore::default();
        let faults = Faults::default();
        let entries = [
            pay(&mut first, "A", "1", 1, &faults),
            pay(&mut first, "A", "1", 2, &faults),
            pay(&mut first, "A", "2", 3, &faults),
            pay(&mut first, "B", "0", 4, &faults),
        ];
        let outcomes = entries.clone().map(|entry| entry.request.outcome);
        assert_eq!(outcomes, [Outcome::Executed, Outcome::Replayed, Outcome::KeyReused, Outcome::Refused]);
        let mut second = KeyStore::default();
        for entry in &entries {
            second.replay(entry);
        }
        assert_eq!(first.stats(), second.stats());
        for keys in [&mut first, &mut second] {
            let next = pay(keys, "A", "1", 5, &faults);
            assert_eq!((next.request.ordinal, next.request.key_ordinal), (5, 4));
            assert_eq!(next.request.outcome, Outcome::Replayed);
            assert_eq!(pay(keys, "C", "1", 6, &faults).executed.unwrap().reference, "BNK-0000000002");
        }
    }
}
