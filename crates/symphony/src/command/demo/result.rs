//! The demo's result, as text and as JSON: the load, the kills and the audits of all lanes.

use std::fmt::Write as _;

use serde::Serialize;

use super::{
    display::{Colours, grouped},
    lane::{AuditSection, Row},
    lanes::LaneAudits,
    load_generator::LoadCounts,
};

/// How many violations or notes of a lane the text lists; JSON has them all.
const LISTED: usize = 20;

/// The demo's result. Field names are those of the JSON output.
#[derive(Serialize)]
pub(super) struct DemoResult {
    holds: bool,
    seed: u64,
    kills: u32,
    business: LoadCounts,
    /// The dashboard's address, if the demo keeps running.
    dashboard: Option<String>,
    #[serde(flatten)]
    lanes: LaneAudits,
}

impl DemoResult {
    pub(super) fn new(lanes: LaneAudits, business: LoadCounts, kills: u32, seed: u64) -> Self {
        Self { holds: lanes.holds(), seed, kills, business, dashboard: None, lanes }
    }

    /// Sets the dashboard's address of a demo that keeps running.
    pub(super) fn with_dashboard(self, dashboard: Option<String>) -> Self {
        Self { dashboard, ..self }
    }

    pub(super) fn dashboard(&self) -> Option<&str> {
        self.dashboard.as_deref()
    }

    pub(super) fn holds(&self) -> bool {
        self.holds
    }

    pub(super) fn text(&self, colours: Colours, history: Option<&str>) -> String {
        let business = &self.business;
        let mut text = String::from("\n");
        write(
            &mut text,
            &Row::new(
                "orders",
                grouped(business.committed),
                format!(
                    "committed; {} rolled back, {} payments enqueued twice (idempotent replay)",
                    business.rolled_back, business.enqueued_again
                ),
            ),
        );
        write(&mut text, &Row::new("killed", self.kills, "relayers, with kill -9"));
        let sections = self.lanes.sections();
        for section in &sections {
            // Writing to a String cannot fail.
            let _ = writeln!(text, "\n{}", colours.bold(section.title));
            section.rows.iter().for_each(|row| write(&mut text, row));
            list(&mut text, section, colours);
        }
        text.push('\n');
        for AuditSection { summary, findings, .. } in &sections {
            let _ = if findings.is_empty() {
                writeln!(text, "{}", colours.good(&format!("{summary}; no violations")))
            } else {
                let words = format!("{summary}; AUDIT FAILED: {} violations", findings.len());
                writeln!(text, "{}", colours.bad(&words))
            };
        }
        if let Some(history) = history {
            let _ = writeln!(
                text,
                "\n{}\n\n{}",
                colours.bold("One of the payments, as `symphony inspect` shows it"),
                history.trim_end()
            );
        }
        if self.dashboard.is_none() {
            text.push_str(
                "\nNext: symphony demo --keep keeps it running with its dashboard; --faults many injects more faults.\n\
                 Guarantees and their proofs: docs/guarantees.md\n",
            );
        }
        text
    }
}

fn write(text: &mut String, Row { name, number, more }: &Row) {
    let _ = writeln!(text, "  {name:<10}{number:>8}  {more}");
}

/// Lists violations, and unknown outcomes that an operator has to resolve.
fn list(text: &mut String, section: &AuditSection, colours: Colours) {
    for finding in section.findings.iter().take(LISTED) {
        let _ = writeln!(text, "  {} {finding}", colours.bad("VIOLATION"));
    }
    for note in section.notes.iter().take(LISTED) {
        let _ = writeln!(text, "  {note}");
    }
    let more = [section.findings.len(), section.notes.len()].map(|all| all.saturating_sub(LISTED));
    if more != [0, 0] {
        let _ = writeln!(text, "  and {} more: --json lists all", more[0] + more[1]);
    }
}
