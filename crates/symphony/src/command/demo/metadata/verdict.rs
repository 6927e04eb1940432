//! The audit of metadata: the entries that were committed, against the business's own rows and against what somebody finds in the stores
//! who is not one of them.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use symphony_proof::kit::audit::metadata::{Entry, Finding, Report, compare};
use symphony_proof::shop::{
    self,
    profiles::{self, Told},
};
use tokio_postgres::Client;

use super::Keeper;
use crate::command::demo::{
    lane::{self, Part, Row},
    view::grouped,
};
use crate::failure::Failure;

/// What became of the entries.
#[derive(Serialize)]
pub(in crate::command::demo) struct Verdict {
    committed: usize,
    missing: usize,
    outdated: usize,
    /// Times that an entry failed, its relayer's death included.
    failures: i64,
    /// Claims of dead relayers that the demo made older than 5 minutes.
    freed: u64,
    stores: Vec<InStore>,
    /// What the database of the business alone shows.
    findings: Vec<Finding>,
}

/// What was found in one store.
#[derive(Serialize)]
struct InStore {
    store: String,
    #[serde(flatten)]
    report: Report,
}

/// Reads all sides and compares them.
pub(super) async fn reach(owner: &Client, keepers: &[Keeper], freed: u64) -> Result<Verdict, Failure> {
    let told = profiles::told(owner).await?;
    let findings = against_the_business(&told, &shop::committed(owner).await?, &profiles::all(owner).await?);
    let mut stores = Vec::with_capacity(keepers.len());
    for Keeper { entity_types, store } in keepers {
        let committed: Vec<Entry> = told
            .iter()
            .filter(|told| entity_types.contains(&told.entity_type.as_str()))
            .map(|told| told.entry.clone())
            .collect();
        let report = compare(&committed, &store.read().await?);
        stores.push(InStore { store: store.name(), report });
    }
    let all = || stores.iter().flat_map(|at| &at.report.findings).chain(&findings);
    Ok(Verdict {
        committed: told.len(),
        missing: all().filter(|finding| finding.is_loss()).count(),
        outdated: all().filter(|finding| matches!(finding, Finding::Outdated { .. })).count(),
        failures: told.iter().map(|told| i64::from(told.retries)).sum(),
        freed,
        stores,
        findings,
    })
}

/// Each order that was committed has its entry, and nothing else has one; and the latest entry of a profile says what the profile is.
fn against_the_business(
    told: &[Told],
    orders: &BTreeSet<String>,
    profiles: &BTreeMap<String, String>,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut untold: BTreeSet<&str> = orders.iter().map(String::as_str).collect();
    let mut latest: BTreeMap<&str, &Entry> = BTreeMap::new();
    for Told { entry, order_id, .. } in told {
        if !order_id.as_deref().is_some_and(|order| untold.remove(order)) {
            findings.push(Finding::ToldOfNothing { id: entry.id.clone() });
        }
        let last = latest.entry(&entry.entity).or_insert(entry);
        if last.version < entry.version {
            *last = entry;
        }
    }
    findings.extend(untold.into_iter().map(|order| Finding::Untold { subject: order.to_owned() }));
    let said = |entity: &str| latest.get(entity).map(|entry| entry.metadata.as_str());
    let wrong = profiles.iter().filter(|(entity, profile)| said(entity) != Some(profile.as_str()));
    findings.extend(wrong.map(|(entity, _)| Finding::NotTheEntity { entity: entity.clone() }));
    findings
}

impl lane::Verdict for Verdict {
    fn holds(&self) -> bool {
        self.findings.is_empty() && self.stores.iter().all(|at| at.report.findings.is_empty())
    }

    fn part(&self) -> Part {
        let ended = |count: fn(&Report) -> usize| self.stores.iter().map(|at| count(&at.report)).sum::<usize>();
        let (published, dead) = (ended(|report| report.published), ended(|report| report.dead));
        let mut rows = vec![Row::new(
            "entries",
            grouped(self.committed),
            format!(
                "= {} published + {dead} dead + {} open",
                grouped(published),
                self.committed - published - dead
            ),
        )];
        rows.extend(self.stores.iter().map(|InStore { store, report }| {
            let more = format!("of {} entities are in {store}", grouped(report.entities));
            Row::new("found", grouped(report.records), more)
        }));
        rows.extend([
            Row::new("again", grouped(self.failures), "times one was tried again"),
            Row::new(
                "freed",
                grouped(self.freed),
                "of dead relayers, at once; the contract would let 5 minutes pass",
            ),
        ]);
        let findings = self.stores.iter().flat_map(|at| at.report.findings.iter().map(move |found| (at, found)));
        let findings = findings.map(|(at, found)| format!("{}: {found}", at.store));
        Part {
            title: "The audit of metadata: profiles and outbox against what somebody else finds in the stores",
            rows,
            findings: findings.chain(self.findings.iter().map(ToString::to_string)).collect(),
            notes: Vec::new(),
            result: format!("metadata: {} missing, {} out of date", self.missing, self.outdated),
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_outbox::metadata::Status;

    use super::*;

    fn told(version: i64, order: &str) -> Told {
        let (entity, metadata) = ("merchant/1".to_owned(), order.to_uppercase());
        let entry = Entry { id: version.to_string(), entity, version, status: Status::Published, metadata };
        Told { entry, entity_type: "merchant".into(), order_id: Some(order.into()), retries: 0 }
    }

    #[test]
    fn an_order_without_its_entry_is_found_and_so_is_a_profile_that_its_latest_entry_does_not_say() {
        let orders = BTreeSet::from(["a".to_owned(), "b".to_owned()]);
        let profile = |is: &str| BTreeMap::from([("merchant/1".to_owned(), is.to_owned())]);
        // Versions count, not the order in which they are read.
        let both = [told(2, "b"), told(1, "a")];
        assert_eq!(against_the_business(&both, &orders, &profile("B")), []);
        let entity = "merchant/1".to_owned();
        assert_eq!(against_the_business(&both, &orders, &profile("A")), [Finding::NotTheEntity { entity }]);
        let findings = against_the_business(&[told(1, "a"), told(2, "c"), told(3, "a")], &orders, &profile("A"));
        let expected = [
            Finding::ToldOfNothing { id: "2".to_owned() },
            Finding::ToldOfNothing { id: "3".to_owned() },
            Finding::Untold { subject: "b".to_owned() },
        ];
        assert_eq!(findings, expected);
        let nobody = against_the_business(&[], &BTreeSet::new(), &profile("A"));
        assert_eq!(nobody, [Finding::NotTheEntity { entity: "merchant/1".to_owned() }]);
    }
}
