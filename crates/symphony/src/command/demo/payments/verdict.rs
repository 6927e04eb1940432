//! The audit of payments: the outbox against the bank's own ledger.

use std::collections::BTreeMap;

use serde::Serialize;
use symphony_outbox::payment::AttemptState;
use symphony_proof::{
    kit::audit::{self, Books, Report, UnknownLetter},
    shop::{self, Numbers},
};
use tokio_postgres::Client;

use super::bank::Counts;
use crate::command::demo::{
    lane::{self, Part, Row},
    view::{grouped, span},
};
use crate::failure::Failure;

/// What became of the payments.
#[derive(Serialize)]
pub(in crate::command::demo) struct Verdict {
    lost: usize,
    executed_twice: usize,
    bank: Counts,
    numbers: Numbers,
    /// Known failures by their code.
    failures: BTreeMap<String, usize>,
    report: Report,
}

/// Reads both sides and compares them.
pub(super) async fn reach(
    owner: &mut Client,
    ledger: &str,
    bank: Counts,
    numbers: Numbers,
) -> Result<Verdict, Failure> {
    let unreadable = |error| Failure::because("there is nothing to audit", error);
    let books = audit::read(owner).await.map_err(unreadable)?;
    let executions = audit::executions(ledger).map_err(unreadable)?;
    let committed = shop::committed(owner).await?;
    let report = audit::compare(&books, &executions, Some(&committed));
    Ok(Verdict {
        lost: report.lost(),
        executed_twice: report.executed_twice(),
        bank,
        numbers,
        failures: failures(&books),
        report,
    })
}

fn failures(books: &Books) -> BTreeMap<String, usize> {
    let mut failures = BTreeMap::new();
    let ends = books.outboxes.iter().filter_map(|outbox| outbox.attempts.last());
    for end in ends.filter(|end| end.state == AttemptState::Failed && !end.is_unknown()) {
        *failures.entry(end.error_code.clone().unwrap_or_default()).or_insert(0) += 1;
    }
    failures
}

impl lane::Verdict for Verdict {
    fn holds(&self) -> bool {
        self.report.holds()
    }

    fn part(&self) -> Part {
        let counts = &self.report.counts;
        let mut rows = vec![
            Row::new(
                "outboxes",
                grouped(counts.outboxes),
                format!(
                    "= {} dispatched + {} failed + {} unknown + {} pending",
                    grouped(counts.dispatched),
                    counts.failed,
                    counts.unknown,
                    counts.pending
                ),
            ),
            Row::new("executed", grouped(counts.executed), "payments at the bank, compared one by one"),
            Row::new("in order", grouped(counts.in_order), "of them on the ordered rail, by participant"),
            Row::new(
                "attempts",
                grouped(counts.attempts),
                format!(
                    "{} were tried again: {} in doubt, of which {} because a worker died",
                    grouped(counts.retried),
                    grouped(counts.in_doubt),
                    grouped(counts.expired)
                ),
            ),
            Row::new("inquiries", grouped(self.bank.inquiries), "before anything in doubt was sent again"),
            Row::new(
                "latency",
                span(self.numbers.p50_ms),
                format!(
                    "p50, {} p99, from the enqueue to the ledger, faults and kills included",
                    span(self.numbers.p99_ms)
                ),
            ),
        ];
        for (code, number) in &self.failures {
            rows.push(Row::new("failed", grouped(number), format!("{code}: not paid, and a person decides")));
        }
        Part {
            title: "The audit of payments: the outbox against the bank's own ledger",
            rows,
            findings: self.report.findings.iter().map(ToString::to_string).collect(),
            notes: self.report.unknown.iter().map(unknown).collect(),
            result: format!("payments: {} lost, {} executed twice", self.lost, self.executed_twice),
        }
    }
}

/// What nobody knows but the bank.
fn unknown(letter: &UnknownLetter) -> String {
    let (says, resolution) = match &letter.executed {
        Some(reference) => (format!("it was executed as {reference}"), "PAID"),
        None => ("it was not executed".to_owned(), "NOT_PAID"),
    };
    format!(
        "unknown   outbox {} ran out of attempts in doubt and waits for a person. The bank says: {says}.\n            \
         symphony dlq resolve {} --as {resolution} --actor … --reason …",
        letter.outbox_id, letter.outbox_id
    )
}
