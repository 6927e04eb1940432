//! The audit of payments: compares the outbox with the bank's own ledger.

use std::collections::BTreeMap;

use serde::Serialize;
use symphony_db::payment::AttemptState;
use symphony_testkit::{
    reconciliation::{self, Outboxes, Report, UnknownOutcome},
    shop::{self, Numbers},
};
use tokio_postgres::Client;

use crate::command::bank_process::Counts;
use crate::command::demo::{
    display::{grouped, span},
    lane::{self, AuditSection, Row},
};
use crate::failure::Failure;

/// The result of the payment audit. Field names are those of the JSON output.
#[derive(Serialize)]
pub(in crate::command::demo) struct PaymentAudit {
    lost: usize,
    executed_twice: usize,
    bank: Counts,
    numbers: Numbers,
    /// Terminal failures with a known outcome, by error code.
    failures: BTreeMap<String, usize>,
    report: Report,
}

/// Reads both sides and compares them.
pub(super) async fn run(
    owner: &mut Client,
    ledger: &str,
    bank: Counts,
    numbers: Numbers,
) -> Result<PaymentAudit, Failure> {
    let unreadable = |error| Failure::because("cannot read the data for the audit", error);
    let books = reconciliation::read(owner).await.map_err(unreadable)?;
    let executions = reconciliation::executions(ledger).map_err(unreadable)?;
    let committed = shop::committed(owner).await?;
    let report = reconciliation::compare(&books, &executions, Some(&committed));
    Ok(PaymentAudit {
        lost: report.lost(),
        executed_twice: report.executed_twice(),
        bank,
        numbers,
        failures: failures(&books),
        report,
    })
}

fn failures(books: &Outboxes) -> BTreeMap<String, usize> {
    let mut failures = BTreeMap::new();
    let ends = books.outboxes.iter().filter_map(|outbox| outbox.attempts.last());
    for end in ends.filter(|end| end.state == AttemptState::Failed && !end.is_unknown()) {
        *failures.entry(end.error_code.clone().unwrap_or_default()).or_insert(0) += 1;
    }
    failures
}

impl lane::AuditResult for PaymentAudit {
    fn holds(&self) -> bool {
        self.report.holds()
    }

    fn section(&self) -> AuditSection {
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
            Row::new(
                "in order",
                grouped(counts.in_order),
                "of them on the ordered rail, in sequence per participant",
            ),
            Row::new(
                "attempts",
                grouped(counts.attempts),
                format!(
                    "{} retried: {} after an unknown outcome, {} of these after a kill",
                    grouped(counts.retried),
                    grouped(counts.unknown_outcomes),
                    grouped(counts.expired)
                ),
            ),
            Row::new(
                "inquiries",
                grouped(self.bank.inquiries),
                "before a payment with an unknown outcome was sent again",
            ),
            Row::new(
                "latency",
                span(self.numbers.p50_ms),
                format!("p50, {} p99, from enqueue to ledger, with faults and kills", span(self.numbers.p99_ms)),
            ),
        ];
        for (code, number) in &self.failures {
            rows.push(Row::new("failed", grouped(number), format!("{code}: not paid, in the dead-letter queue")));
        }
        AuditSection {
            title: "Payment audit: the outbox compared with the bank's own ledger",
            rows,
            findings: self.report.findings.iter().map(ToString::to_string).collect(),
            notes: self.report.unknown.iter().map(unknown).collect(),
            summary: format!("payments: {} lost, {} executed twice", self.lost, self.executed_twice),
        }
    }
}

/// A dead letter with an unknown outcome, with what the bank's ledger says about it.
fn unknown(letter: &UnknownOutcome) -> String {
    let (says, resolution) = match &letter.executed {
        Some(reference) => (format!("it was executed as {reference}"), "PAID"),
        None => ("it was not executed".to_owned(), "NOT_PAID"),
    };
    format!(
        "unknown   outbox {}: no attempts left, outcome unknown. The bank's ledger: {says}.\n            \
         symphony dlq resolve {} --as {resolution} --actor … --reason …",
        letter.outbox_id, letter.outbox_id
    )
}
