//! The audit of events: compares committed events with what a separate client reads from the brokers.

use std::collections::BTreeSet;

use serde::Serialize;
use symphony_testkit::reconciliation::events::{Event, Finding, Report, compare};
use symphony_testkit::shop::{
    self,
    events::{self as shop_events, CommittedEvent},
};
use tokio_postgres::Client;

use super::{Destination, EventRoute};
use crate::command::demo::{
    display::grouped,
    lane::{self, AuditSection, Row},
};
use crate::failure::Failure;

/// The result of the event audit. Field names are those of the JSON output.
#[derive(Serialize)]
pub(in crate::command::demo) struct EventAudit {
    committed: usize,
    missing: usize,
    repeats: usize,
    out_of_order: usize,
    /// Retries, including waits for an earlier event of the aggregate.
    handed_back: i64,
    broker_kills: u32,
    /// Claims of killed relayers that the demo expired before their 5 minutes.
    freed: u64,
    places: Vec<AtDestination>,
    /// Findings in the database alone.
    findings: Vec<Finding>,
}

/// The comparison with one destination.
#[derive(Serialize)]
struct AtDestination {
    place: String,
    #[serde(flatten)]
    report: Report,
}

/// Reads both sides and compares them.
pub(super) async fn run(
    owner: &Client,
    places: &[(EventRoute, Destination)],
    broker_kills: u32,
    freed: u64,
) -> Result<EventAudit, Failure> {
    let rows = shop_events::committed(owner).await?;
    let findings = check_against_orders(&rows, &shop::committed(owner).await?);
    let mut found = Vec::with_capacity(places.len());
    for (EventRoute { aggregate_type, sink, .. }, place) in places {
        let committed: Vec<Event> =
            rows.iter().filter(|row| row.aggregate_type == *aggregate_type).map(|row| row.event.clone()).collect();
        let report = compare(&committed, &place.read(sink).await?);
        found.push(AtDestination { place: place.name(), report });
    }
    let all = || found.iter().flat_map(|at| &at.report.findings).chain(&findings);
    Ok(EventAudit {
        committed: rows.len(),
        missing: all().filter(|finding| finding.is_loss()).count(),
        repeats: found.iter().map(|at| at.report.repeats).sum(),
        out_of_order: all().filter(|finding| matches!(finding, Finding::OutOfOrder { .. })).count(),
        handed_back: rows.iter().map(|row| i64::from(row.retries)).sum(),
        broker_kills,
        freed,
        places: found,
        findings,
    })
}

/// Checks that each committed order has one processed event, and no other event exists.
fn check_against_orders(rows: &[CommittedEvent], orders: &BTreeSet<String>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut without_event: BTreeSet<&str> = orders.iter().map(String::as_str).collect();
    for CommittedEvent { event, order_id, processed, .. } in rows {
        if !order_id.as_deref().is_some_and(|order| without_event.remove(order)) {
            findings.push(Finding::NoSuchOrder { id: event.id });
        }
        if !processed {
            findings.push(Finding::Unprocessed { id: event.id });
        }
    }
    findings.extend(without_event.into_iter().map(|order| Finding::NotPublished { subject: order.to_owned() }));
    findings
}

impl lane::AuditResult for EventAudit {
    fn holds(&self) -> bool {
        self.findings.is_empty() && self.places.iter().all(|at| at.report.findings.is_empty())
    }

    fn section(&self) -> AuditSection {
        let mut rows = vec![Row::new("events", grouped(self.committed), "committed, each with its order")];
        rows.extend(self.places.iter().map(|AtDestination { place, report }| {
            let more = format!("of {} are in {place}", grouped(report.committed));
            Row::new("found", grouped(report.arrived), more)
        }));
        let aggregates: usize = self.places.iter().map(|at| at.report.aggregates).sum();
        rows.extend([
            Row::new("in order", grouped(aggregates), "aggregates, by the sequence of their events"),
            Row::new("duplicates", grouped(self.repeats), "delivered again with the same event id"),
            Row::new("retried", grouped(self.handed_back), "after a failure, or to wait for an earlier event"),
            Row::new("killed", self.broker_kills, "broker, with kill -9"),
            Row::new(
                "expired",
                grouped(self.freed),
                "claims of killed relayers, at once instead of after 5 minutes",
            ),
        ]);
        let findings = self.places.iter().flat_map(|at| at.report.findings.iter().map(move |found| (at, found)));
        let findings = findings.map(|(at, found)| format!("{}: {found}", at.place));
        AuditSection {
            title: "Event audit: the outbox compared with the brokers, read by a separate client",
            rows,
            findings: findings.chain(self.findings.iter().map(ToString::to_string)).collect(),
            notes: Vec::new(),
            summary: format!("events: {} missing, {} out of order", self.missing, self.out_of_order),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn committed_event(id: i64, order: &str, processed: bool) -> CommittedEvent {
        let event = Event { id, key: "merchant/1".to_owned() };
        CommittedEvent {
            event,
            aggregate_type: "merchant".into(),
            order_id: Some(order.into()),
            processed,
            retries: 0,
        }
    }

    #[test]
    fn an_order_without_its_event_is_found_and_so_is_an_event_without_its_order() {
        let orders = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        assert_eq!(
            check_against_orders(&[committed_event(1, "a", true), committed_event(2, "b", true)], &orders),
            []
        );
        let findings = check_against_orders(
            &[committed_event(1, "a", false), committed_event(2, "c", true), committed_event(3, "a", true)],
            &orders,
        );
        let expected = [
            Finding::Unprocessed { id: 1 },
            Finding::NoSuchOrder { id: 2 },
            Finding::NoSuchOrder { id: 3 },
            Finding::NotPublished { subject: "b".to_owned() },
        ];
        assert_eq!(findings, expected);
    }
}
