//! Compares the outbox with the bank's ledger and with the orders that the producer committed. No I/O.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use symphony_db::payment::AttemptState;

use super::bank::Execution;
use super::outboxes::{Outbox, Outboxes};
use super::report::{Finding, Report, UnknownOutcome};

/// How many sequence numbers an epoch has.
const EPOCH_RANGE: i64 = 1_000_000_000_000;

/// The state of one outbox, by its own ledger.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// Not ended.
    Pending,
    /// Paid.
    Dispatched,
    /// Not paid, and terminal.
    Failed,
    /// Terminal with an unknown outcome.
    Unknown,
    /// Neither pending nor in a terminal state.
    NeitherPendingNorEnded,
}

/// Compares the outbox with the bank and, if given, with the ids of the instructions that the producer committed.
///
/// Several outboxes of one key are redrives: the key counts as paid if one of them was.
pub fn compare(outboxes: &Outboxes, bank: &[Execution], committed: Option<&BTreeSet<String>>) -> Report {
    let mut report = Report::default();
    if let Some(committed) = committed {
        compare_with_producer(outboxes, committed, &mut report);
    }
    let mut executed: HashMap<&str, Vec<&Execution>> = HashMap::new();
    for execution in bank {
        executed.entry(&execution.key).or_default().push(execution);
    }
    report.counts.executed = bank.len();
    report.counts.outboxes = outboxes.outboxes.len();
    check_sequence_numbers(outboxes, &mut report);

    let mut keys: BTreeMap<&str, Vec<(&Outbox, End)>> = BTreeMap::new();
    for outbox in &outboxes.outboxes {
        let end = check_attempts(outbox, &mut report);
        keys.entry(&outbox.key).or_default().push((outbox, end));
    }
    for (key, outboxes) in &keys {
        compare_with_bank(key, outboxes, executed.get(key).map_or(&[], Vec::as_slice), &mut report);
    }
    for (key, times) in executed.iter().collect::<BTreeMap<_, _>>() {
        if times.len() > 1 {
            report.findings.push(Finding::ExecutedTwice { key: (*key).to_owned(), times: times.len() });
        }
        if !keys.contains_key(key) {
            report.findings.push(Finding::ExecutedWithoutOutbox { key: (*key).to_owned() });
        }
    }
    check_order(bank, &keys, &mut report);
    report
}

/// The outbox has every committed instruction, and no other.
fn compare_with_producer(outboxes: &Outboxes, committed: &BTreeSet<String>, report: &mut Report) {
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

/// Every allocated sequence number belongs to an outbox. Each epoch has a range of numbers; of all but the last of a participant
/// it is not known how many were allocated behind those that are there.
fn check_sequence_numbers(outboxes: &Outboxes, report: &mut Report) {
    let there: BTreeSet<(&str, i64)> =
        outboxes.outboxes.iter().map(|outbox| (outbox.participant_id.as_str(), outbox.sequence_id)).collect();
    for (participant_id, last) in &outboxes.numbers {
        let all = (participant_id.as_str(), 1)..=(participant_id.as_str(), *last);
        let mut ends: BTreeMap<i64, i64> =
            there.range(all).map(|(_, number)| ((number - 1) / EPOCH_RANGE, *number)).collect();
        ends.insert((last - 1) / EPOCH_RANGE, *last);
        for (epoch, end) in ends {
            let numbers = epoch * EPOCH_RANGE + 1..=end;
            for sequence_id in numbers.filter(|number| !there.contains(&(participant_id.as_str(), *number))) {
                report
                    .findings
                    .push(Finding::NumberMissing { participant_id: participant_id.clone(), sequence_id });
            }
        }
    }
}

/// The attempts of an outbox have no gap, and only the last may be terminal.
fn check_attempts(outbox: &Outbox, report: &mut Report) -> End {
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
        None => End::NeitherPendingNorEnded,
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
        End::NeitherPendingNorEnded => report.findings.push(Finding::NeitherPendingNorEnded { outbox_id }),
    }
    end
}

/// The outboxes of a key agree with the bank's executions of it.
fn compare_with_bank(key: &str, outboxes: &[(&Outbox, End)], executed: &[&Execution], report: &mut Report) {
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
    let requested = paid.first().or(outboxes.last().map(|(outbox, _)| outbox));
    if let (Some(outbox), Some(execution)) = (requested, executed.first()) {
        compare_fields(outbox, execution, report);
    }
}

/// The bank executed what was requested.
fn compare_fields(outbox: &Outbox, execution: &Execution, report: &mut Report) {
    let absent = String::new();
    let recorded = outbox.attempts.last().and_then(|attempt| attempt.reference.as_ref());
    for (what, requested, executed) in [
        ("instruction", &outbox.instruction_id, &execution.instruction_id),
        ("participant", &outbox.participant_id, &execution.participant_id),
        ("amount", outbox.amount.as_ref().unwrap_or(&absent), &execution.amount),
        ("currency", outbox.currency.as_ref().unwrap_or(&absent), &execution.currency),
        ("reference", recorded.unwrap_or(&execution.reference), &execution.reference),
    ] {
        if requested != executed {
            let (requested, executed) = (requested.clone(), executed.clone());
            report.findings.push(Finding::Differs { outbox_id: outbox.outbox_id, what, requested, executed });
        }
    }
}

/// On ordered rails the bank executed each participant's payments by sequence number.
fn check_order(bank: &[Execution], keys: &BTreeMap<&str, Vec<(&Outbox, End)>>, report: &mut Report) {
    let mut in_order: Vec<&Execution> = bank.iter().collect();
    in_order.sort_by_key(|execution| execution.ordinal);
    let mut highest: HashMap<(&str, &str), i64> = HashMap::new();
    let mut seen = BTreeSet::new();
    for execution in in_order {
        let outbox = keys.get(execution.key.as_str()).and_then(|outboxes| outboxes.first());
        let Some((outbox, _)) = outbox.filter(|(outbox, _)| outbox.ordered) else { continue };
        // A second execution of a key is reported as ExecutedTwice.
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
