//! The audit in words and as JSON: what was compared, what was found, and what to look at next.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::Serialize;
use symphony_outbox::payment::AttemptState;
use symphony_proof::{
    kit::audit::{self, Books, Report},
    shop::{self, Numbers},
};

use super::{
    counts::{BankCounts, Counts},
    load::Tally,
    stage::Stage,
    view::{Colours, grouped, span},
};
use crate::failure::Failure;

/// How many findings or letters are listed; JSON has them all.
const LISTED: usize = 20;

/// What the demo comes to.
#[derive(Serialize)]
pub(super) struct Verdict {
    holds: bool,
    lost: usize,
    executed_twice: usize,
    seed: u64,
    kills: u32,
    business: Tally,
    bank: BankCounts,
    numbers: Numbers,
    /// Known failures by their code.
    failures: BTreeMap<String, usize>,
    report: Report,
}

/// Reads both sides and compares them.
pub(super) async fn reach(stage: &Stage, business: Tally, last: Counts, seed: u64) -> Result<Verdict, Failure> {
    let unreadable = |error| Failure::because("there is nothing to audit", error);
    let mut owner = stage.owner().await?;
    let books = audit::read(&mut owner).await.map_err(unreadable)?;
    let bank = audit::executions(&stage.bank_ledger()?).map_err(unreadable)?;
    let committed = shop::committed(&owner).await?;
    let report = audit::compare(&books, &bank, Some(&committed));
    Ok(Verdict {
        holds: report.holds(),
        lost: report.lost(),
        executed_twice: report.executed_twice(),
        seed,
        kills: last.kills,
        business,
        bank: last.bank,
        numbers: last.numbers,
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

impl Verdict {
    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    pub(super) fn text(&self, colours: Colours, story: Option<&str>, kept: bool) -> String {
        let counts = &self.report.counts;
        let mut text = format!("\n{}\n", colours.bold("The audit: the outbox against the bank's own ledger"));
        let mut row = |name: &str, number: String, more: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "  {name:<10}{number:>8}  {more}");
        };
        row(
            "orders",
            grouped(counts.committed.unwrap_or_default()),
            format!(
                "committed; {} were rolled back with their payments, {} payments were enqueued twice",
                self.business.rolled_back, self.business.enqueued_again
            ),
        );
        row(
            "outboxes",
            grouped(counts.outboxes),
            format!(
                "= {} dispatched + {} failed + {} unknown + {} pending",
                grouped(counts.dispatched),
                counts.failed,
                counts.unknown,
                counts.pending
            ),
        );
        row("executed", grouped(counts.executed), "payments at the bank, compared one by one".to_owned());
        row("in order", grouped(counts.in_order), "of them on the ordered rail, by participant".to_owned());
        row(
            "attempts",
            grouped(counts.attempts),
            format!(
                "{} were tried again: {} in doubt, of which {} because a worker died",
                grouped(counts.retried),
                grouped(counts.in_doubt),
                grouped(counts.expired)
            ),
        );
        row("inquiries", grouped(self.bank.inquiries), "before anything in doubt was sent again".to_owned());
        row("kills", self.kills.to_string(), "of relayers, with kill -9".to_owned());
        row(
            "latency",
            span(self.numbers.p50_ms),
            format!(
                "p50, {} p99, from the enqueue to the ledger, faults and kills included",
                span(self.numbers.p99_ms)
            ),
        );
        for (code, number) in &self.failures {
            row("failed", grouped(number), format!("{code}: not paid, and a person decides"));
        }
        self.list(&mut text, colours);
        let verdict = format!("{} lost, {} executed twice", self.lost, self.executed_twice);
        let verdict = if self.holds {
            colours.good(&format!("{verdict}; everything else agrees"))
        } else {
            colours.bad(&format!("{verdict}; THE AUDIT DOES NOT HOLD: {} findings", self.report.findings.len()))
        };
        let _ = writeln!(text, "\n{verdict}");
        if let Some(story) = story {
            let _ = writeln!(
                text,
                "\n{}\n\n{}",
                colours.bold("One of them, as `symphony inspect` tells it"),
                story.trim_end()
            );
        }
        if !kept {
            text.push_str(
                "\nNext: symphony demo --keep leaves it running, to look around; --faults many makes the bank worse.\n\
                 What is promised, and how each promise is tried: docs/guarantees.md\n",
            );
        }
        text
    }

    /// What must not be, and what nobody knows.
    fn list(&self, text: &mut String, colours: Colours) {
        for finding in self.report.findings.iter().take(LISTED) {
            let _ = writeln!(text, "  {} {finding}", colours.bad("FOUND"));
        }
        for letter in self.report.unknown.iter().take(LISTED) {
            let (says, resolution) = match &letter.executed {
                Some(reference) => (format!("it was executed as {reference}"), "PAID"),
                None => ("it was not executed".to_owned(), "NOT_PAID"),
            };
            let _ = writeln!(
                text,
                "  unknown   outbox {} ran out of attempts in doubt and waits for a person. The bank says: {says}.\n            \
                 symphony dlq resolve {} --as {resolution} --actor … --reason …",
                letter.outbox_id, letter.outbox_id
            );
        }
        let more = [self.report.findings.len(), self.report.unknown.len()].map(|all| all.saturating_sub(LISTED));
        if more != [0, 0] {
            let _ = writeln!(text, "  and {} more: --json lists all", more[0] + more[1]);
        }
    }
}
