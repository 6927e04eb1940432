//! What the demo comes to, in words and as JSON: the audits of all lanes, and what to look at next.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    lane::{Part, Row},
    lanes::Verdicts,
    load::Tally,
    view::{Colours, grouped},
};

/// How many findings or notes of a lane are listed; JSON has them all.
const LISTED: usize = 20;

/// What the demo comes to.
#[derive(Serialize)]
pub(super) struct Verdict {
    holds: bool,
    seed: u64,
    kills: u32,
    business: Tally,
    /// Where everything can still be looked at; nowhere once the demo has ended.
    dashboard: Option<String>,
    #[serde(flatten)]
    lanes: Verdicts,
}

impl Verdict {
    pub(super) fn new(lanes: Verdicts, business: Tally, kills: u32, seed: u64) -> Self {
        Self { holds: lanes.holds(), seed, kills, business, dashboard: None, lanes }
    }

    /// The same, with where everything can still be looked at, if it can.
    pub(super) fn at(self, dashboard: Option<String>) -> Self {
        Self { dashboard, ..self }
    }

    pub(super) fn dashboard(&self) -> Option<&str> {
        self.dashboard.as_deref()
    }

    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    pub(super) fn text(&self, colours: Colours, story: Option<&str>) -> String {
        let business = &self.business;
        let mut text = String::from("\n");
        write(
            &mut text,
            &Row::new(
                "orders",
                grouped(business.committed),
                format!(
                    "committed; {} were rolled back with all they had written, {} payments were enqueued twice",
                    business.rolled_back, business.enqueued_again
                ),
            ),
        );
        write(&mut text, &Row::new("kills", self.kills, "of relayers, with kill -9"));
        let parts = self.lanes.parts();
        for part in &parts {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\n{}", colours.bold(part.title));
            part.rows.iter().for_each(|row| write(&mut text, row));
            list(&mut text, part, colours);
        }
        text.push('\n');
        for Part { result, findings, .. } in &parts {
            let _ = if findings.is_empty() {
                writeln!(text, "{}", colours.good(&format!("{result}; everything else agrees")))
            } else {
                let words = format!("{result}; THE AUDIT DOES NOT HOLD: {} findings", findings.len());
                writeln!(text, "{}", colours.bad(&words))
            };
        }
        if let Some(story) = story {
            let _ = writeln!(
                text,
                "\n{}\n\n{}",
                colours.bold("One of the payments, as `symphony inspect` tells it"),
                story.trim_end()
            );
        }
        if self.dashboard.is_none() {
            text.push_str(
                "\nNext: symphony demo --keep leaves it running, to look around on its dashboard; --faults many makes the bank worse.\n\
                 What is promised, and how each promise is tried: docs/guarantees.md\n",
            );
        }
        text
    }
}

fn write(text: &mut String, Row { name, number, more }: &Row) {
    let _ = writeln!(text, "  {name:<10}{number:>8}  {more}");
}

/// What must not be, and what a person has to look at.
fn list(text: &mut String, part: &Part, colours: Colours) {
    for finding in part.findings.iter().take(LISTED) {
        let _ = writeln!(text, "  {} {finding}", colours.bad("FOUND"));
    }
    for note in part.notes.iter().take(LISTED) {
        let _ = writeln!(text, "  {note}");
    }
    let more = [part.findings.len(), part.notes.len()].map(|all| all.saturating_sub(LISTED));
    if more != [0, 0] {
        let _ = writeln!(text, "  and {} more: --json lists all", more[0] + more[1]);
    }
}
