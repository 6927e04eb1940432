//! The audit of events: what was committed, against what somebody finds where they went who is not the sink.

use std::collections::BTreeSet;

use serde::Serialize;
use symphony_proof::kit::audit::events::{Event, Finding, Report, compare};
use symphony_proof::shop::{
    self,
    news::{self, Told},
};
use tokio_postgres::Client;

use super::{News, Place};
use crate::command::demo::{
    lane::{self, Part, Row},
    view::grouped,
};
use crate::failure::Failure;

/// What became of the events.
#[derive(Serialize)]
pub(in crate::command::demo) struct Verdict {
    committed: usize,
    missing: usize,
    repeats: usize,
    out_of_order: usize,
    /// Times that an event had to be tried again or to wait for its turn.
    handed_back: i64,
    broker_kills: u32,
    /// Claims of dead relayers that the demo made older than 5 minutes.
    freed: u64,
    places: Vec<AtPlace>,
    /// What the database alone shows.
    findings: Vec<Finding>,
}

/// What was found at one place.
#[derive(Serialize)]
struct AtPlace {
    place: String,
    #[serde(flatten)]
    report: Report,
}

/// Reads both sides and compares them.
pub(super) async fn reach(
    owner: &Client,
    places: &[(News, Place)],
    broker_kills: u32,
    freed: u64,
) -> Result<Verdict, Failure> {
    let told = news::told(owner).await?;
    let findings = against_the_business(&told, &shop::committed(owner).await?);
    let mut found = Vec::with_capacity(places.len());
    for (News { aggregate_type, sink, .. }, place) in places {
        let committed: Vec<Event> = told
            .iter()
            .filter(|told| told.aggregate_type == *aggregate_type)
            .map(|told| told.event.clone())
            .collect();
        let report = compare(&committed, &place.read(sink).await?);
        found.push(AtPlace { place: place.name(), report });
    }
    let all = || found.iter().flat_map(|at| &at.report.findings).chain(&findings);
    Ok(Verdict {
        committed: told.len(),
        missing: all().filter(|finding| finding.is_loss()).count(),
        repeats: found.iter().map(|at| at.report.repeats).sum(),
        out_of_order: all().filter(|finding| matches!(finding, Finding::Overtaken { .. })).count(),
        handed_back: told.iter().map(|told| i64::from(told.retries)).sum(),
        broker_kills,
        freed,
        places: found,
        findings,
    })
}

/// Each order that was committed is told of, and nothing else is; and all of it is completed.
fn against_the_business(told: &[Told], orders: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut untold: BTreeSet<&str> = orders.iter().map(String::as_str).collect();
    for Told { event, order_id, processed, .. } in told {
        if !order_id.as_deref().is_some_and(|order| untold.remove(order)) {
            findings.push(Finding::ToldOfNothing { id: event.id });
        }
        if !processed {
            findings.push(Finding::Unprocessed { id: event.id });
        }
    }
    findings.extend(untold.into_iter().map(|order| Finding::Untold { subject: order.to_owned() }));
    findings
}

impl lane::Verdict for Verdict {
    fn holds(&self) -> bool {
        self.findings.is_empty() && self.places.iter().all(|at| at.report.findings.is_empty())
    }

    fn part(&self) -> Part {
        let mut rows = vec![Row::new("events", grouped(self.committed), "committed, each with its order")];
        rows.extend(self.places.iter().map(|AtPlace { place, report }| {
            let more = format!("of {} are at {place}", grouped(report.committed));
            Row::new("found", grouped(report.arrived), more)
        }));
        let aggregates: usize = self.places.iter().map(|at| at.report.aggregates).sum();
        rows.extend([
            Row::new(
                "in order",
                grouped(aggregates),
                "aggregates, each by the numbers of its events, repeats aside",
            ),
            Row::new("repeats", grouped(self.repeats), "with the number of one that was there already"),
            Row::new("again", grouped(self.handed_back), "times one was tried again, or had to wait for its turn"),
            Row::new("kills", self.broker_kills, "of a place where events go"),
            Row::new(
                "freed",
                grouped(self.freed),
                "of dead relayers, at once; the contract would let 5 minutes pass",
            ),
        ]);
        let findings = self.places.iter().flat_map(|at| at.report.findings.iter().map(move |found| (at, found)));
        let findings = findings.map(|(at, found)| format!("{}: {found}", at.place));
        Part {
            title: "The audit of events: the outbox against what somebody else finds there",
            rows,
            findings: findings.chain(self.findings.iter().map(ToString::to_string)).collect(),
            notes: Vec::new(),
            result: format!("events: {} missing, {} out of order", self.missing, self.out_of_order),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(id: i64, order: &str, processed: bool) -> Told {
        let event = Event { id, key: "merchant/1".to_owned() };
        Told { event, aggregate_type: "merchant".into(), order_id: Some(order.into()), processed, retries: 0 }
    }

    #[test]
    fn an_order_without_its_event_is_found_and_so_is_an_event_without_its_order() {
        let orders = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(against_the_business(&[told(1, "a", true), told(2, "b", true)], &orders), []);
        let findings =
            against_the_business(&[told(1, "a", false), told(2, "c", true), told(3, "a", true)], &orders);
        let expected = [
            Finding::Unprocessed { id: 1 },
            Finding::ToldOfNothing { id: 2 },
            Finding::ToldOfNothing { id: 3 },
            Finding::Untold { subject: "b".to_owned() },
        ];
        assert_eq!(findings, expected);
    }
}
