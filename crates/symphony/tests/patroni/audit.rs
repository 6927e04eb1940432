//! What must be true at the end of a run, by the records of the database, the banks, the broker and the store.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

use symphony_db::metadata::EntryId;
use symphony_testkit::reconciliation::events::{self, Event};
use symphony_testkit::reconciliation::{self, Finding};
use tokio_postgres::Client;

use crate::bank::Request;
use crate::harness::{DESTINATION, FORGETFUL, Harness};
use crate::load::{Acknowledged, ENTITIES};

/// Payments that were enqueued in one epoch, by their number, and sent under a lease of a later one.
const SENT_IN_A_LATER_EPOCH: &str = "
    select a.idempotency_key
    from symphony.payment_outbox_attempts a
    where a.state = 'DISPATCHED'
      and a.epoch > (a.sequence_id - 1) / 1000000000000 + 1";

/// What became of a run.
#[derive(Debug)]
pub(crate) struct Report {
    faults: usize,
    epochs: i64,
    payments: usize,
    events: usize,
    entries: usize,
    /// Acknowledged, and not there at the end.
    lost_payments: usize,
    lost_events: usize,
    lost_entries: usize,
    /// Executed by a bank, without a row in the database.
    executed_without_row: usize,
    executed_twice: usize,
    /// Sent again, without an inquiry since it was sent before.
    resent_unasked: usize,
    inquiries: usize,
    /// Payments that wait for an operator because their outcome is unknown: by the bank's memory of keys.
    stopped: usize,
    stopped_forgetful: usize,
    /// Arrived at the broker more than once.
    repeats: usize,
    /// Arrived at the broker from a history that was lost.
    arrived_without_row: usize,
    longest_outage: Duration,
    findings: Vec<String>,
}

impl Report {
    /// What must be true in every mode.
    pub(crate) fn holds(&self) {
        assert_eq!(self.findings, Vec::<String>::new(), "{self}");
        assert_eq!((self.executed_twice, self.resent_unasked), (0, 0), "{self}");
        assert!(self.epochs > 1, "no epoch was opened: {self}");
    }

    /// What must be true besides if commits wait for a standby.
    pub(crate) fn lost_nothing(&self) {
        let lost = (self.lost_commits(), self.executed_without_row, self.arrived_without_row);
        assert_eq!(lost, (0, 0, 0), "{self}");
    }

    /// Commits that were acknowledged and lost.
    pub(crate) fn lost_commits(&self) -> usize {
        self.lost_payments + self.lost_events + self.lost_entries
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { faults, epochs, payments, events, entries, .. } = self;
        writeln!(
            f,
            "{faults} faults of leaders, newest epoch {epochs}, longest outage {:.1?}",
            self.longest_outage
        )?;
        writeln!(f, "acknowledged: {payments} payments, {events} events, {entries} metadata entries")?;
        writeln!(
            f,
            "acknowledged commits lost: {} payments, {} events, {} metadata entries",
            self.lost_payments, self.lost_events, self.lost_entries
        )?;
        writeln!(
            f,
            "banks: {} executed without a row, {} executed twice, {} sent again unasked, {} inquiries",
            self.executed_without_row, self.executed_twice, self.resent_unasked, self.inquiries
        )?;
        writeln!(
            f,
            "unknown outcomes stopped: {} at the bank that remembers, {} at the bank that forgets",
            self.stopped, self.stopped_forgetful
        )?;
        writeln!(f, "broker: {} repeats, {} events without a row", self.repeats, self.arrived_without_row)?;
        for finding in &self.findings {
            writeln!(f, "WRONG: {finding}")?;
        }
        Ok(())
    }
}

/// Reads all records after a run, and compares them.
pub(crate) async fn audit(harness: &Harness, faults: usize, acknowledged: &Acknowledged) -> Report {
    let mut superuser = harness.superuser().await;
    let newest = "select e.counter, e.timeline = (select c.timeline_id from pg_control_checkpoint() c)
                  from symphony.epochs e order by e.counter desc limit 1";
    let newest = superuser.query_one(newest, &[]).await.unwrap();
    let mut report = Report {
        faults,
        epochs: newest.get(0),
        payments: acknowledged.payments.len(),
        events: acknowledged.events.len(),
        entries: acknowledged.metadata.len(),
        lost_payments: 0,
        lost_events: 0,
        lost_entries: 0,
        executed_without_row: 0,
        executed_twice: 0,
        resent_unasked: 0,
        inquiries: 0,
        stopped: 0,
        stopped_forgetful: 0,
        repeats: 0,
        arrived_without_row: 0,
        longest_outage: acknowledged.longest_outage,
        findings: Vec::new(),
    };
    if !newest.get::<_, bool>(1) {
        report.findings.push("the newest epoch is not of the timeline of the server".to_owned());
    }
    payments(harness, &mut superuser, acknowledged, &mut report).await;
    events(harness, &superuser, acknowledged, &mut report).await;
    metadata(harness, &superuser, acknowledged, &mut report).await;
    report
}

async fn payments(harness: &Harness, superuser: &mut Client, acknowledged: &Acknowledged, report: &mut Report) {
    let outboxes = reconciliation::read(superuser).await.unwrap();
    let banks = [&harness.bank, &harness.forgetful_bank];
    let (mut executions, mut asked) = (Vec::new(), BTreeSet::new());
    for bank in banks {
        executions.extend(bank.ledger().await);
        let requests = bank.requests().await;
        report.inquiries += requests.iter().filter(|request| request.kind == "inquiry").count();
        report.resent_unasked += resent_unasked(&requests);
        asked.extend(requests.into_iter().filter(|request| request.kind == "inquiry").map(|request| request.key));
    }
    for row in superuser.query(SENT_IN_A_LATER_EPOCH, &[]).await.unwrap() {
        let key: String = row.get(0);
        if !asked.contains(&key) {
            report.findings.push(format!("{key} is of an earlier epoch, and was sent without an inquiry"));
        }
    }
    let compared = reconciliation::compare(&outboxes, &executions, Some(&acknowledged.payments));
    for finding in compared.findings {
        match finding {
            Finding::Lost { .. } => report.lost_payments += 1,
            Finding::ExecutedWithoutOutbox { .. } => report.executed_without_row += 1,
            Finding::ExecutedTwice { .. } => report.executed_twice += 1,
            finding => report.findings.push(finding.to_string()),
        }
    }
    let rails: BTreeMap<_, _> =
        outboxes.outboxes.iter().map(|outbox| (outbox.outbox_id, &outbox.rail_type)).collect();
    for unknown in compared.unknown {
        if rails[&unknown.outbox_id] == FORGETFUL {
            report.stopped_forgetful += 1;
        } else {
            report.stopped += 1;
        }
    }
}

/// How many payments a bank has got again without an inquiry in between.
fn resent_unasked(requests: &[Request]) -> usize {
    let (mut resent, mut sent) = (0, BTreeSet::new());
    for request in requests {
        if request.kind == "inquiry" {
            sent.remove(&request.key);
        } else if !sent.insert(&request.key) {
            resent += 1;
        }
    }
    resent
}

async fn events(harness: &Harness, superuser: &Client, acknowledged: &Acknowledged, report: &mut Report) {
    let all =
        "select id, aggregate_type || '/' || aggregate_id from m10_recovery.outbox where processed_at is not null";
    let rows = superuser.query(all, &[]).await.unwrap();
    let processed: Vec<Event> = rows.iter().map(|row| Event { id: row.get(0), key: row.get(1) }).collect();
    let there: BTreeSet<i64> = processed.iter().map(|event| event.id).collect();
    report.lost_events = acknowledged.events.iter().filter(|event| !there.contains(&event.id)).count();
    let compared = events::compare(&processed, &harness.broker.read(DESTINATION).await.unwrap());
    report.repeats = compared.repeats;
    for finding in compared.findings {
        match finding {
            events::Finding::NeverCommitted { .. } => report.arrived_without_row += 1,
            finding => report.findings.push(finding.to_string()),
        }
    }
}

async fn metadata(harness: &Harness, superuser: &Client, acknowledged: &Acknowledged, report: &mut Report) {
    let all = "select id, entity_id, status::text, symphony.metadata_version(created_at, epoch), metadata::text
               from symphony.metadata_outbox";
    let (mut there, mut expected) = (BTreeSet::new(), BTreeMap::<String, (i64, String)>::new());
    for row in superuser.query(all, &[]).await.unwrap() {
        let (id, entity, status): (_, String, String) = (EntryId(row.get(0)), row.get(1), row.get(2));
        there.insert(id);
        if status != "PUBLISHED" {
            report.findings.push(format!("metadata entry {id} is {status}"));
        }
        let record = (row.get(3), row.get(4));
        let latest = expected.entry(entity).or_insert_with(|| record.clone());
        *latest = record.max(latest.clone());
    }
    report.lost_entries = acknowledged.metadata.difference(&there).count();
    let hashes = harness.store.hashes("symphony:metadata:").await.unwrap();
    let record = |fields: BTreeMap<String, String>| {
        let field = |name: &str| fields[name].clone();
        (field("entity_id"), (field("version").parse().unwrap(), field("metadata")))
    };
    let stored: BTreeMap<String, (i64, String)> = hashes.into_values().map(record).collect();
    assert_eq!(expected.len(), ENTITIES);
    for (entity, latest) in expected {
        if stored.get(&entity) != Some(&latest) {
            report.findings.push(format!("the store has {:?} of {entity}, not {latest:?}", stored.get(&entity)));
        }
    }
}
