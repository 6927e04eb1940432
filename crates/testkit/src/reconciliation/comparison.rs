//! The comparison itself. Pure: two lists and what the business has committed go in, findings come out.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use symphony_db::payment::AttemptState;

use super::bank::Execution;
use super::outboxes::{Outbox, Outboxes};
use super::report::{Finding, Report, UnknownOutcome};

/// What became of one outbox, by its own ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Not yet.
    Pending,
    /// It was paid.
    Dispatched,
    /// It was not paid and will not be.
    Failed,
    /// The outcome is unknown.
    Unknown,
    /// It has no end and is not in the queue.
    Nowhere,
}

/// Compares the outbox with the bank, and with the ids of the instructions that the business has committed, where those
/// are known.
///
/// Several outboxes of one key are redrives of each other: the key counts as paid if one of them was.
pub fn compare(outboxes: &Outboxes, bank: &[Execution], committed: Option<&BTreeSet<String>>) -> Report {
    let mut report = Report::default();
    if let Some(committed) = committed {
        against_the_business(outboxes, committed, &mut report);
    }
    let mut executed: HashMap<&str, Vec<&Execution>> = HashMap::new();
    for execution in bank {
        executed.entry(&execution.key).or_default().push(execution);
    }
    report.counts.executed = bank.len();
    report.counts.outboxes = outboxes.outboxes.len();
    numbers(outboxes, &mut report);

    let mut keys: BTreeMap<&str, Vec<(&Outbox, End)>> = BTreeMap::new();
    for outbox in &outboxes.outboxes {
        let end = ledger(outbox, &mut report);
        keys.entry(&outbox.key).or_default().push((outbox, end));
    }
    for (key, outboxes) in &keys {
        against_the_bank(key, outboxes, executed.get(key).map_or(&[], Vec::as_slice), &mut report);
    }
    for (key, times) in executed.iter().collect::<BTreeMap<_, _>>() {
        if times.len() > 1 {
            report.findings.push(Finding::ExecutedTwice { key: (*key).to_owned(), times: times.len() });
        }
        if !keys.contains_key(key) {
            report.findings.push(Finding::ExecutedUnasked { key: (*key).to_owned() });
        }
    }
    order(bank, &keys, &mut report);
    report
}

/// What was committed is there, and nothing else.
fn against_the_business(outboxes: &Outboxes, committed: &BTreeSet<String>, report: &mut Report) {
    report.counts.committed = Some(committed.len());
    let there: BTreeSet<&str> = outboxes.outboxes.iter().map(|outbox| outbox.instruction_id.as_str()).collect();
    for instruction_id in committed.iter().filter(|id| !there.contains(id.as_str())) {
        report.findings.push(Finding::Lost { instruction_id: instruction_id.clone() });
    }
    for outbox in outboxes.outboxes.iter().filter(|outbox| !committed.contains(&outbox.instruction_id)) {
        let (outbox_id, instruction_id) = (outbox.outbox_id, outbox.instruction_id.clone());
        report.findings.push(Finding::NeverCommitted { outbox_id, instruction_id });
    }
}

/// Every number that was given out belongs to an outbox.
fn numbers(outboxes: &Outboxes, report: &mut Report) {
    let there: BTreeSet<(&str, i64)> =
        outboxes.outboxes.iter().map(|outbox| (outbox.participant_id.as_str(), outbox.sequence_id)).collect();
    for (participant_id, last) in &outboxes.numbers {
        for sequence_id in (1..=*last).filter(|number| !there.contains(&(participant_id.as_str(), *number))) {
            report.findings.push(Finding::NumberMissing { participant_id: participant_id.clone(), sequence_id });
        }
    }
}

/// An outbox by its own ledger: every attempt is accounted for, and at most the last is its end.
fn ledger(outbox: &Outbox, report: &mut Report) -> End {
    let outbox_id = outbox.outbox_id;
    let attempts = &outbox.attempts;
    report.counts.attempts += attempts.len();
    report.counts.retried += attempts.iter().filter(|attempt| !attempt.is_terminal()).count();
    report.counts.expired +=
        attempts.iter().filter(|attempt| attempt.error_code.as_deref() == Some("LEASE_EXPIRED")).count();
    report.counts.unknown_outcomes += attempts.iter().filter(|attempt| attempt.is_unknown()).count();
    if attempts.iter().zip(1..).any(|(attempt, number)| attempt.number != number) {
        report.findings.push(Finding::AttemptMissing { outbox_id });
    }
    let first_end = attempts.iter().position(super::Attempt::is_terminal);
    if first_end.is_some_and(|place| place + 1 < attempts.len() || outbox.pending) {
        report.findings.push(Finding::EndedTwice { outbox_id });
    }
    let end = match first_end.and_then(|place| attempts.get(place)) {
        Some(attempt) if attempt.state == AttemptState::Dispatched => End::Dispatched,
        Some(attempt) if attempt.is_unknown() => End::Unknown,
        Some(_) => End::Failed,
        None if outbox.pending => End::Pending,
        None => End::Nowhere,
    };
    let counts = &mut report.counts;
    match end {
        End::Dispatched => counts.dispatched += 1,
        End::Failed => counts.failed += 1,
        End::Unknown => counts.unknown += 1,
        End::Pending => {
            counts.pending += 1;
            report.findings.push(Finding::StillPending { outbox_id });
        }
        End::Nowhere => report.findings.push(Finding::Forgotten { outbox_id }),
    }
    end
}

/// A key: what its outboxes say, and what the bank did.
fn against_the_bank(key: &str, outboxes: &[(&Outbox, End)], executed: &[&Execution], report: &mut Report) {
    let ended = |end| outboxes.iter().filter(move |(_, at)| *at == end).map(|(outbox, _)| *outbox);
    let paid: Vec<_> = ended(End::Dispatched).collect();
    if paid.len() > 1 {
        report.findings.push(Finding::DispatchedTwice { key: key.to_owned() });
    }
    for outbox in ended(End::Unknown) {
        report.unknown.push(UnknownOutcome {
            outbox_id: outbox.outbox_id,
            instruction_id: outbox.instruction_id.clone(),
            key: key.to_owned(),
            executed: executed.first().map(|execution| execution.reference.clone()),
        });
    }
    match (paid.first(), executed.first()) {
        (Some(outbox), None) => {
            let (outbox_id, key) = (outbox.outbox_id, key.to_owned());
            report.findings.push(Finding::DispatchedNotExecuted { outbox_id, key });
        }
        // A key counts as accounted for while one outbox is dispatched, pending or unknown.
        (None, Some(_)) if outboxes.iter().all(|(_, end)| *end == End::Failed) => {
            if let Some((outbox, _)) = outboxes.last() {
                let (outbox_id, key) = (outbox.outbox_id, key.to_owned());
                report.findings.push(Finding::ExecutedThoughFailed { outbox_id, key });
            }
        }
        _ => {}
    }
    let asked = paid.first().or(outboxes.last().map(|(outbox, _)| outbox));
    if let (Some(outbox), Some(execution)) = (asked, executed.first()) {
        same(outbox, execution, report);
    }
}

/// What was executed is what was asked for.
fn same(outbox: &Outbox, execution: &Execution, report: &mut Report) {
    let absent = String::new();
    let recorded = outbox.attempts.last().and_then(|attempt| attempt.reference.as_ref());
    for (what, asked, executed) in [
        ("instruction", &outbox.instruction_id, &execution.instruction_id),
        ("participant", &outbox.participant_id, &execution.participant_id),
        ("amount", outbox.amount.as_ref().unwrap_or(&absent), &execution.amount),
        ("currency", outbox.currency.as_ref().unwrap_or(&absent), &execution.currency),
        ("reference", recorded.unwrap_or(&execution.reference), &execution.reference),
    ] {
        if asked != executed {
            let (asked, executed) = (asked.clone(), executed.clone());
            report.findings.push(Finding::Differs { outbox_id: outbox.outbox_id, what, asked, executed });
        }
    }
}

/// On ordered rails the bank saw each participant's payments in the order of their numbers.
fn order(bank: &[Execution], keys: &BTreeMap<&str, Vec<(&Outbox, End)>>, report: &mut Report) {
    let mut in_order: Vec<&Execution> = bank.iter().collect();
    in_order.sort_by_key(|execution| execution.ordinal);
    let mut highest: HashMap<(&str, &str), i64> = HashMap::new();
    let mut seen = BTreeSet::new();
    for execution in in_order {
        let outbox = keys.get(execution.key.as_str()).and_then(|outboxes| outboxes.first());
        let Some((outbox, _)) = outbox.filter(|(outbox, _)| outbox.ordered) else { continue };
        // A second execution of a key has a finding of its own.
        if !seen.insert(execution.key.as_str()) {
            continue;
        }
        report.counts.in_order += 1;
        let last = highest.entry((&outbox.participant_id, &outbox.rail_type)).or_insert(0);
        if execution.sequence_id < *last {
            report.findings.push(Finding::OutOfOrder {
                participant_id: outbox.participant_id.clone(),
                rail_type: outbox.rail_type.clone(),
                first: *last,
                then: execution.sequence_id,
            });
        }
        *last = execution.sequence_id.max(*last);
    }
}
