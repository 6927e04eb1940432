//! Reads the status of each installed lane, and renders it as tables.

use serde::Serialize;
use symphony_db::schema::{Lane, install::installed_lanes};
use symphony_db::{epoch, event, metadata, payment};
use tokio_postgres::Client;

use crate::{failure::Failure, table::Table};

/// The status of the installed lanes.
#[derive(Serialize)]
pub(super) struct Lanes {
    /// The current epoch; null if the database has none.
    epoch: Option<epoch::Epoch>,
    #[serde(flatten)]
    payment: Option<payment::reader::Status>,
    /// Orphaned outcomes that no reconciliation of their rail has followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    open_orphans: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<event::reader::Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<metadata::reader::Totals>,
}

impl Lanes {
    /// Reads the status; with `exact` it counts every pending row.
    pub(super) async fn read(client: &Client, exact: bool) -> Result<Self, Failure> {
        let database = |error| Failure::database("the query failed", error);
        let installed = installed_lanes(client).await.map_err(database)?;
        let mut lanes = Self { epoch: None, payment: None, open_orphans: None, events: None, metadata: None };
        // Where nothing is installed, this read fails with "not installed".
        if installed.is_empty() || installed.contains(&Lane::Payment) {
            lanes.payment = Some(if exact {
                payment::reader::exact_status(client).await?
            } else {
                payment::reader::status(client).await?
            });
            lanes.open_orphans = Some(payment::reader::open_orphans(client).await?);
        }
        if installed.contains(&Lane::Event) {
            lanes.events = Some(if exact {
                event::reader::exact_status(client).await?
            } else {
                event::reader::status(client).await?
            });
        }
        if installed.contains(&Lane::Metadata) {
            lanes.metadata = Some(if exact {
                metadata::reader::exact_totals(client).await?
            } else {
                metadata::reader::totals(client).await?
            });
        }
        lanes.epoch = epoch::current(client).await?;
        Ok(lanes)
    }

    /// One table per lane.
    pub(super) fn text(&self) -> String {
        let tables = [
            self.payment.as_ref().map(payments),
            self.events.as_ref().map(events),
            self.metadata.as_ref().map(entries),
        ];
        let mut text = tables.into_iter().flatten().collect::<Vec<_>>().join("\n");
        if let Some(epoch) = &self.epoch {
            text.push_str(&format!("\nepoch {}, opened {}: {}\n", epoch.counter, epoch.opened_at, epoch.reason));
        }
        text.push_str(&held(self.payment.as_ref()));
        text.push_str(&held_streams(self.payment.as_ref()));
        if let Some(open @ 1..) = self.open_orphans {
            text.push_str(&format!(
                "orphaned outcomes: {open}; the bank has payments whose history the database has lost: symphony recover orphans\n"
            ));
        }
        text
    }
}

fn payments(status: &payment::reader::Status) -> String {
    let heading =
        ["rail", "due", "leased", "expired", "scheduled", "oldest due", "oldest", "dead", "unknown", "paused"];
    let mut table = Table::new(heading);
    for rail in &status.rails {
        table.push([
            rail.rail_type.clone(),
            count(rail.due_unleased_count, rail.more_due),
            count(rail.leased_count, rail.more_due),
            count(rail.expired_lease_count, rail.more_due),
            count(rail.scheduled_count, rail.more_scheduled),
            age(rail.oldest_due_age_seconds),
            age(rail.oldest_pending_age_seconds),
            rail.dlq.to_string(),
            rail.dlq_unknown.to_string(),
            match (rail.paused, rail.held_since_epoch) {
                (true, _) => "paused".to_owned(),
                (false, Some(_)) => "held".to_owned(),
                (false, None) => "no".to_owned(),
            },
        ]);
    }
    table.push([
        "all payments".to_owned(),
        count(status.due_unleased_count, status.more_due),
        count(status.leased_count, status.more_due),
        count(status.expired_lease_count, status.more_due),
        count(status.scheduled_count, status.more_scheduled),
        age(status.oldest_due_age_seconds),
        age(status.oldest_pending_age_seconds),
        status.dlq.to_string(),
        status.dlq_unknown.to_string(),
        status.rails.iter().filter(|rail| rail.paused).count().to_string(),
    ]);
    let mut text = table.render();
    if status.more_due || status.more_scheduled {
        text.push_str(&capped("payments", status.estimate));
    }
    if status.rails.is_empty() {
        text.push_str(
            "no rail is registered yet; register one with: symphony rail add NAME --actor … --reason …\n",
        );
    }
    text
}

/// Says which rails are held, and what to do; empty if none is.
fn held(status: Option<&payment::reader::Status>) -> String {
    let rails = status.iter().flat_map(|status| &status.rails);
    let held: Vec<_> =
        rails.filter(|rail| rail.held_since_epoch.is_some()).map(|rail| rail.rail_type.as_str()).collect();
    if held.is_empty() {
        return String::new();
    }
    format!(
        "held since a new epoch: {}; compare them with the bank, then release them with: symphony recover release\n",
        held.join(", ")
    )
}

/// Says on which rails failures hold later payments, and what to do; empty if none does.
fn held_streams(status: Option<&payment::reader::Status>) -> String {
    let rails = status.iter().flat_map(|status| &status.rails);
    let held: Vec<_> = rails
        .filter(|rail| rail.held_streams > 0)
        .map(|rail| format!("{} ({} participants)", rail.rail_type, rail.held_streams))
        .collect();
    if held.is_empty() {
        return String::new();
    }
    format!("failures hold later payments: {}; list them with: symphony dlq held\n", held.join(", "))
}

fn events(status: &event::reader::Status) -> String {
    let mut table = Table::new(["aggregate type", "due", "claimed", "stuck", "scheduled", "oldest due", "oldest"]);
    for kind in &status.by_aggregate_type {
        table.push([
            kind.aggregate_type.clone(),
            count(kind.due, status.more_due),
            count(kind.claimed, status.more_claimed),
            count(kind.stuck, status.more_stuck),
            count(kind.scheduled, status.more_scheduled),
            age(kind.oldest_due_age_seconds),
            age(kind.oldest_pending_age_seconds),
        ]);
    }
    table.push([
        "all events".to_owned(),
        count(status.due, status.more_due),
        count(status.claimed, status.more_claimed),
        count(status.stuck, status.more_stuck),
        count(status.scheduled, status.more_scheduled),
        age(status.oldest_due_age_seconds),
        age(status.oldest_pending_age_seconds),
    ]);
    let mut text = table.render();
    if status.is_capped() {
        text.push_str(&capped("events", status.estimate));
    }
    text
}

fn entries(totals: &metadata::reader::Totals) -> String {
    let mut table =
        Table::new(["entity type", "due", "processing", "stuck", "scheduled", "oldest due", "oldest", "dead"]);
    for kind in &totals.by_entity_type {
        table.push([
            kind.entity_type.clone(),
            count(kind.due, totals.more_due),
            count(kind.processing, totals.more_processing),
            count(kind.stuck, totals.more_stuck),
            count(kind.scheduled, totals.more_scheduled),
            age(kind.oldest_due_age_seconds),
            age(kind.oldest_pending_age_seconds),
            kind.dlq.to_string(),
        ]);
    }
    table.push([
        "all metadata".to_owned(),
        count(totals.due, totals.more_due),
        count(totals.processing, totals.more_processing),
        count(totals.stuck, totals.more_stuck),
        count(totals.scheduled, totals.more_scheduled),
        age(totals.oldest_due_age_seconds),
        age(totals.oldest_pending_age_seconds),
        totals.dlq.to_string(),
    ]);
    let mut text = table.render();
    if totals.is_capped() {
        text.push_str(&capped("metadata entries", totals.estimate));
    }
    text
}

/// A count, with a + if counting stopped at its limit.
fn count(rows: i64, more: bool) -> String {
    if more { format!("{rows}+") } else { rows.to_string() }
}

/// Says what a + means.
fn capped(rows: &str, estimate: i64) -> String {
    format!(
        "+: counting stopped at its limit. About {estimate} {rows} are pending, by PostgreSQL's estimate; \
         symphony status --exact counts all.\n"
    )
}

fn age(seconds: f64) -> String {
    format!("{seconds:.1}s")
}
