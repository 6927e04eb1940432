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
    payment::{Money, Payment},
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
    /// What was accepted, to be decided later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) accepted: Option<Accepted>,
    /// The fingerprint of the body that was executed, refused or accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) fingerprint: Option<String>,
}

/// A payment that the bank has accepted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Accepted {
    pub(super) instruction_id: String,
    pub(super) participant_id: String,
    pub(super) sequence_id: i64,
    pub(super) amount: String,
    pub(super) currency: String,
    /// Whether the bank means to execute it.
    pub(super) will_execute: bool,
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
    result: KeyResult,
    at: Timestamp,
    /// Its position among all remembered keys.
    position: u64,
    /// Whether it was ever executed, also before it was forgotten.
    ever_executed: bool,
}

/// What became of a key.
enum KeyResult {
    /// The reference of what was executed.
    Executed(String),
    /// The code of the refusal.
    Refused(String),
    /// It is decided later.
    Accepted(Accepted),
}

/// The number of requests for a key.
#[derive(Default)]
struct RequestCounts {
    payments: u64,
    inquiries: u64,
    settlements: u64,
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
        if kind != Kind::Settlement {
            self.stats.received += 1;
        }
        let seen = self.seen.entry(key.clone()).or_default();
        let count = match kind {
            Kind::Payment => &mut seen.payments,
            Kind::Inquiry => &mut seen.inquiries,
            Kind::Settlement => &mut seen.settlements,
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
            accepted: None,
            fingerprint: Some(payment.fingerprint),
        };
        let accept = |money: Money, will_execute| Accepted {
            instruction_id: payment.instruction_id,
            participant_id: payment.participant_id,
            sequence_id: payment.sequence_id,
            amount: money.amount,
            currency: money.currency,
            will_execute,
        };
        let status = match (money, fault) {
            (Ok(money), Fault::Accept | Fault::AcceptRefuse) => {
                entry.request.outcome = Outcome::Accepted;
                entry.accepted = Some(accept(money, fault == Fault::Accept));
                Status::Pending
            }
            (Ok(money), _) => self.execute(&mut entry, payment.key, accept(money, true), now),
            (Err(code), _) => {
                entry.refused = Some(code.clone());
                Status::Refused { code }
            }
        };
        self.apply(&entry);
        (entry, Decision::Status { status, replay: false })
    }

    fn execute(&self, entry: &mut LedgerEntry, key: String, payment: Accepted, now: Timestamp) -> Status {
        let Accepted { instruction_id, participant_id, sequence_id, amount, currency, will_execute: _ } = payment;
        let ordinal = self.stats.executed + 1;
        let reference = format!("BNK-{ordinal:010}");
        entry.request.outcome = Outcome::Executed;
        entry.executed = Some(LedgerLine {
            ordinal,
            key,
            instruction_id,
            participant_id,
            sequence_id,
            amount,
            currency,
            reference: reference.clone(),
            executed_at: now,
        });
        Status::Executed { reference }
    }

    /// Decides what becomes of an accepted payment: as the bank means to, unless `execute` says otherwise. None if the key does not
    /// wait for a decision.
    pub(super) fn settle(
        &mut self,
        key: &str,
        execute: Option<bool>,
        faults: &Faults,
        now: Timestamp,
    ) -> Option<(LedgerEntry, Status)> {
        let record = self.known.get(key)?;
        let KeyResult::Accepted(accepted) = &record.result else { return None };
        let (accepted, fingerprint) = (accepted.clone(), record.fingerprint.clone());
        let numbered = self.number_request(Kind::Settlement, key.to_owned());
        let mut entry = LedgerEntry {
            request: line(numbered, Fault::Ok, Outcome::Refused, now),
            executed: None,
            refused: None,
            accepted: None,
            fingerprint: Some(fingerprint),
        };
        let status = if execute.unwrap_or(accepted.will_execute) {
            self.execute(&mut entry, key.to_owned(), accepted, now)
        } else {
            entry.refused = Some(faults.refuse_code.clone());
            Status::Refused { code: faults.refuse_code.clone() }
        };
        self.apply(&entry);
        Some((entry, status))
    }

    /// The keys that wait for a decision.
    pub(super) fn undecided(&self) -> Vec<String> {
        let waits = |(key, record): (&String, &KeyRecord)| {
            matches!(record.result, KeyResult::Accepted(_)).then(|| key.clone())
        };
        self.known.iter().filter_map(waits).collect()
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
            Kind::Settlement => &mut seen.settlements,
        };
        *count = (*count).max(request.key_ordinal);
        if request.kind != Kind::Settlement {
            self.stats.received += 1;
        }
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
        let entry = LedgerEntry { request, executed: None, refused: None, accepted: None, fingerprint: None };
        self.apply(&entry);
        (entry, decision)
    }

    /// Applies an entry, new or replayed.
    fn apply(&mut self, entry: &LedgerEntry) {
        let request = &entry.request;
        match request.kind {
            Kind::Payment => self.stats.payments += 1,
            Kind::Inquiry => self.stats.inquiries += 1,
            Kind::Settlement => {}
        }
        *self.stats.faults.entry(request.fault).or_default() += 1;
        match request.outcome {
            Outcome::Executed => self.stats.executed += 1,
            Outcome::Refused => self.stats.refused += 1,
            Outcome::Accepted => self.stats.accepted += 1,
            Outcome::Replayed => self.stats.replayed += 1,
            Outcome::KeyReused => self.stats.key_reused += 1,
            Outcome::Nothing | Outcome::Found | Outcome::UnknownKey => {}
        }
        let result = match (&entry.executed, &entry.refused, &entry.accepted) {
            (Some(executed), _, _) => KeyResult::Executed(executed.reference.clone()),
            (None, Some(code), _) => KeyResult::Refused(code.clone()),
            (None, None, Some(accepted)) => KeyResult::Accepted(accepted.clone()),
            (None, None, None) => return,
        };
        let is_executed = entry.executed.is_some();
        let before = self.known.get(&request.key).is_some_and(|known| known.ever_executed);
        if before && is_executed {
            self.stats.executed_again += 1;
        }
        self.positions += 1;
        let known = KeyRecord {
            fingerprint: entry.fingerprint.clone().unwrap_or_default(),
            ever_executed: before || is_executed,
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
            KeyResult::Executed(reference) => Status::Executed { reference: reference.clone() },
            KeyResult::Refused(code) => Status::Refused { code: code.clone() },
            KeyResult::Accepted(_) => Status::Pending,
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
    fn an_accepted_payment_is_decided_once_also_after_a_restart() {
        let faults = Faults::default();
        let at = Timestamp::from_second(9).unwrap();
        let body = r#"{"instruction_id":"I","participant_id":"P","sequence_id":1,"idempotency_key":"K","payload":{"amount":"1","currency":"EUR"}}"#;
        let mut first = KeyStore::default();
        let pay = |keys: &mut KeyStore, fault| {
            let numbered = keys.number_request(Kind::Payment, "K".to_owned());
            keys.pay(numbered, Payment::read(body.as_bytes()).unwrap(), fault, &faults, at)
        };
        let (accepted, decision) = pay(&mut first, Fault::Accept);
        assert!(matches!(decision, Decision::Status { status: Status::Pending, replay: false }));
        assert!(matches!(
            pay(&mut first, Fault::Ok).1,
            Decision::Status { status: Status::Pending, replay: true }
        ));
        let mut second = KeyStore::default();
        second.replay(&accepted);
        assert_eq!((first.undecided(), second.undecided()), (vec!["K".to_owned()], vec!["K".to_owned()]));
        let (entry, _) = second.settle("K", None, &faults, at).unwrap();
        assert_eq!((entry.request.kind, entry.request.outcome), (Kind::Settlement, Outcome::Executed));
        assert!(second.settle("K", Some(false), &faults, at).is_none() && second.undecided().is_empty());
        let (entry, _) = first.settle("K", Some(false), &faults, at).unwrap();
        assert_eq!(
            (entry.request.outcome, first.stats().executed, first.stats().refused),
            (Outcome::Refused, 0, 1)
        );
        assert!(first.settle("other", None, &faults, at).is_none());
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
