//! The audit of metadata: compares committed entries with the shop's tables, and with what a separate client reads
//! from the stores.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use symphony_testkit::reconciliation::metadata::{Entry, Finding, Report, compare};
use symphony_testkit::shop::{
    self,
    metadata::{self as shop_metadata, CommittedEntry},
};
use tokio_postgres::Client;

use super::StoreRoute;
use crate::command::demo::{
    display::grouped,
    lane::{self, AuditSection, Row},
};
use crate::failure::Failure;

/// The result of the metadata audit. Field names are those of the JSON published.
#[derive(Serialize)]
pub(in crate::command::demo) struct MetadataAudit {
    committed: usize,
    missing: usize,
    outdated: usize,
    /// Failed attempts, including those of killed relayers.
    failures: i64,
    /// Claims of killed relayers that the demo expired before their 5 minutes.
    freed: u64,
    stores: Vec<InStore>,
    /// Findings in the shop's database alone.
    findings: Vec<Finding>,
}

/// The comparison with one store.
#[derive(Serialize)]
struct InStore {
    store: String,
    #[serde(flatten)]
    report: Report,
}

/// Reads all sides and compares them.
pub(super) async fn run(owner: &Client, routes: &[StoreRoute], freed: u64) -> Result<MetadataAudit, Failure> {
    let rows = shop_metadata::committed(owner).await?;
    let findings =
        check_against_shop(&rows, &shop::committed(owner).await?, &shop_metadata::profiles(owner).await?);
    let mut stores = Vec::with_capacity(routes.len());
    for StoreRoute { entity_types, store } in routes {
        let committed: Vec<Entry> = rows
            .iter()
            .filter(|row| entity_types.contains(&row.entity_type.as_str()))
            .map(|row| row.entry.clone())
            .collect();
        let report = compare(&committed, &store.read().await?);
        stores.push(InStore { store: store.name(), report });
    }
    let all = || stores.iter().flat_map(|at| &at.report.findings).chain(&findings);
    Ok(MetadataAudit {
        committed: rows.len(),
        missing: all().filter(|finding| finding.is_loss()).count(),
        outdated: all().filter(|finding| matches!(finding, Finding::Outdated { .. })).count(),
        failures: rows.iter().map(|row| i64::from(row.retries)).sum(),
        freed,
        stores,
        findings,
    })
}

/// Checks that each committed order has one entry, no other entry exists, and the latest entry equals the profile.
fn check_against_shop(
    rows: &[CommittedEntry],
    orders: &BTreeSet<String>,
    profiles: &BTreeMap<String, String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut without_entry: BTreeSet<&str> = orders.iter().map(String::as_str).collect();
    let mut latest: BTreeMap<&str, &Entry> = BTreeMap::new();
    for CommittedEntry { entry, order_id, .. } in rows {
        if !order_id.as_deref().is_some_and(|order| without_entry.remove(order)) {
            findings.push(Finding::NoSuchOrder { id: entry.id.clone() });
        }
        let last = latest.entry(&entry.entity).or_insert(entry);
        if last.version < entry.version {
            *last = entry;
        }
    }
    findings.extend(without_entry.into_iter().map(|order| Finding::NotPublished { subject: order.to_owned() }));
    let published = |entity: &str| latest.get(entity).map(|entry| entry.metadata.as_str());
    let wrong = profiles.iter().filter(|(entity, profile)| published(entity) != Some(profile.as_str()));
    findings.extend(wrong.map(|(entity, _)| Finding::WrongMetadata { entity: entity.clone() }));
    findings
}

impl lane::AuditResult for MetadataAudit {
    fn holds(&self) -> bool {
        self.findings.is_empty() && self.stores.iter().all(|at| at.report.findings.is_empty())
    }

    fn section(&self) -> AuditSection {
        let ended = |count: fn(&Report) -> usize| self.stores.iter().map(|at| count(&at.report)).sum::<usize>();
        let (published, dead) = (ended(|report| report.published), ended(|report| report.dead));
        let mut rows = vec![Row::new(
            "entries",
            grouped(self.committed),
            format!(
                "= {} published + {dead} dead letters + {} pending",
                grouped(published),
                self.committed - published - dead
            ),
        )];
        rows.extend(self.stores.iter().map(|InStore { store, report }| {
            let more = format!("of {} entities are in {store}", grouped(report.entities));
            Row::new("found", grouped(report.records), more)
        }));
        rows.extend([
            Row::new("retried", grouped(self.failures), "after a failure or a kill"),
            Row::new(
                "expired",
                grouped(self.freed),
                "claims of killed relayers, at once instead of after 5 minutes",
            ),
        ]);
        let findings = self.stores.iter().flat_map(|at| at.report.findings.iter().map(move |found| (at, found)));
        let findings = findings.map(|(at, found)| format!("{}: {found}", at.store));
        AuditSection {
            title: "Metadata audit: the outbox compared with the stores, read by a separate client",
            rows,
            findings: findings.chain(self.findings.iter().map(ToString::to_string)).collect(),
            notes: Vec::new(),
            summary: format!("metadata: {} missing, {} out of date", self.missing, self.outdated),
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_db::metadata::Status;

    use super::*;

    fn committed_entry(version: i64, order: &str) -> CommittedEntry {
        let (entity, metadata) = ("merchant/1".to_owned(), order.to_uppercase());
        let entry = Entry { id: version.to_string(), entity, version, status: Status::Published, metadata };
        CommittedEntry { entry, entity_type: "merchant".into(), order_id: Some(order.into()), retries: 0 }
    }

    #[test]
    fn an_order_without_its_entry_is_found_and_so_is_a_profile_that_its_latest_entry_does_not_say() {
        let orders = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let profile = |is: &str| BTreeMap::from([("merchant/1".to_owned(), is.to_owned())]);
        // Versions count, not the order in which they are read.
        let both = [committed_entry(2, "b"), committed_entry(1, "a")];
        assert_eq!(check_against_shop(&both, &orders, &profile("B")), []);
        let entity = "merchant/1".to_owned();
        assert_eq!(check_against_shop(&both, &orders, &profile("A")), [Finding::WrongMetadata { entity }]);
        let findings = check_against_shop(
            &[committed_entry(1, "a"), committed_entry(2, "c"), committed_entry(3, "a")],
            &orders,
            &profile("A"),
        );
        let expected = [
            Finding::NoSuchOrder { id: "2".to_owned() },
            Finding::NoSuchOrder { id: "3".to_owned() },
            Finding::NotPublished { subject: "b".to_owned() },
        ];
        assert_eq!(findings, expected);
        let no_entry = check_against_shop(&[], &BTreeSet::new(), &profile("A"));
        assert_eq!(no_entry, [Finding::WrongMetadata { entity: "merchant/1".to_owned() }]);
    }
}
