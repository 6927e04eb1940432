//! Reads the status of each installed lane, and renders it as tables.

use serde::Serialize;
use symphony_db::schema::{Lane, install::installed_lanes};
use symphony_db::{event, metadata, payment};
use tokio_postgres::Client;

use crate::{failure::Failure, table::Table};

/// The status of the installed lanes.
#[derive(Serialize)]
pub(super) struct Lanes {
    #[serde(flatten)]
    payment: Option<payment::reader::Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    events: Option<event::reader::Status>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<metadata::reader::Totals>,
}

impl Lanes {
    pub(super) async fn read(client: &Client) -> Result<Self, Failure> {
        let database = |error| Failure::database("the query failed", error);
        let installed = installed_lanes(client).await.map_err(database)?;
        let mut lanes = Self { payment: None, events: None, metadata: None };
        // Where nothing is installed, this read fails with "not installed".
        if installed.is_empty() || installed.contains(&Lane::Payment) {
            lanes.payment = Some(payment::reader::status(client).await?);
        }
        if installed.contains(&Lane::Event) {
            lanes.events = Some(event::reader::status(client).await?);
        }
        if installed.contains(&Lane::Metadata) {
            lanes.metadata = Some(metadata::reader::totals(client).await?);
        }
        Ok(lanes)
    }

    /// One table per lane.
    pub(super) fn text(&self) -> String {
        let tables = [
            self.payment.as_ref().map(payments),
            self.events.as_ref().map(events),
            self.metadata.as_ref().map(entries),
        ];
        tables.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

fn payments(status: &payment::reader::Status) -> String {
    let heading =
        ["rail", "due", "leased", "expired", "scheduled", "oldest due", "oldest", "dead", "unknown", "paused"];
    let mut table = Table::new(heading);
    for rail in &status.rails {
        table.push([
            rail.rail_type.clone(),
            rail.due_unleased_count.to_string(),
            rail.leased_count.to_string(),
            rail.expired_lease_count.to_string(),
            rail.scheduled_count.to_string(),
            age(rail.oldest_due_age_seconds),
            age(rail.oldest_pending_age_seconds),
            rail.dlq.to_string(),
            rail.dlq_unknown.to_string(),
            if rail.paused { "paused".to_owned() } else { "no".to_owned() },
        ]);
    }
    table.push([
        "all payments".to_owned(),
        status.due_unleased_count.to_string(),
        status.leased_count.to_string(),
        status.expired_lease_count.to_string(),
        status.scheduled_count.to_string(),
        age(status.oldest_due_age_seconds),
        age(status.oldest_pending_age_seconds),
        status.dlq.to_string(),
        status.dlq_unknown.to_string(),
        status.rails.iter().filter(|rail| rail.paused).count().to_string(),
    ]);
    let mut text = table.render();
    if status.rails.is_empty() {
        text.push_str(
            "no rail is registered yet; register one with: symphony rail add NAME --actor … --reason …\n",
        );
    }
    text
}

fn events(status: &event::reader::Status) -> String {
    let mut table = Table::new(["aggregate type", "due", "claimed", "stuck", "scheduled", "oldest due", "oldest"]);
    for kind in &status.by_aggregate_type {
        table.push([
            kind.aggregate_type.clone(),
            kind.due.to_string(),
            kind.claimed.to_string(),
            kind.stuck.to_string(),
            kind.scheduled.to_string(),
            age(kind.oldest_due_age_seconds),
            age(kind.oldest_pending_age_seconds),
        ]);
    }
    table.push([
        "all events".to_owned(),
        status.due.to_string(),
        status.claimed.to_string(),
        status.stuck.to_string(),
        status.scheduled.to_string(),
        age(status.oldest_due_age_seconds),
        age(status.oldest_pending_age_seconds),
    ]);
    table.render()
}

fn entries(totals: &metadata::reader::Totals) -> String {
    let mut table =
        Table::new(["entity type", "due", "processing", "stuck", "scheduled", "oldest due", "oldest", "dead"]);
    for kind in &totals.by_entity_type {
        table.push([
            kind.entity_type.clone(),
            kind.due.to_string(),
            kind.processing.to_string(),
            kind.stuck.to_string(),
            kind.scheduled.to_string(),
            age(kind.oldest_due_age_seconds),
            age(kind.oldest_pending_age_seconds),
            kind.dlq.to_string(),
        ]);
    }
    table.push([
        "all metadata".to_owned(),
        totals.due.to_string(),
        totals.processing.to_string(),
        totals.stuck.to_string(),
        totals.scheduled.to_string(),
        age(totals.oldest_due_age_seconds),
        age(totals.oldest_pending_age_seconds),
        totals.dlq.to_string(),
    ]);
    table.render()
}

fn age(seconds: f64) -> String {
    format!("{seconds:.1}s")
}
