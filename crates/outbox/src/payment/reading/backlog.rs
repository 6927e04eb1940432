//! How much is pending, counted no further than it takes to know that it is much.

use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Json;

use crate::error::Fault;

const BACKLOG: &str = "select total, total_most, estimate, rail_most, rails from symphony.payment_backlog()";

/// What is pending.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Backlog {
    /// Outboxes that have not ended, counted up to `total_most`.
    pub total: i64,
    /// Where that count stops: a total that is as much may be more.
    pub total_most: i32,
    /// What the server remembers of the table's size; for totals that are not counted.
    pub estimate: i64,
    /// Where the counts of a rail stop.
    pub rail_most: i32,
    /// The rails, by name.
    pub rails: Vec<RailBacklog>,
}

/// What is pending on one rail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct RailBacklog {
    /// Its name.
    pub rail_type: String,
    /// Whether claims pass it by.
    pub paused: bool,
    /// Whether the instructions of one participant leave strictly in sequence.
    pub ordered: bool,
    /// Most leases at one time over the whole fleet; none is no cap.
    pub max_in_flight: Option<i32>,
    /// Outboxes that may be claimed now, but for pauses and caps.
    pub due: i64,
    /// Outboxes under a live lease.
    pub leased: i64,
    /// Outboxes whose lease ran out.
    pub expired: i64,
    /// Outboxes whose time has not come.
    pub scheduled: i64,
    /// Outboxes that claims have set aside, because an earlier instruction of the same participant is pending on this ordered rail.
    pub parked: i64,
    /// How long ago the oldest outbox of those counted was enqueued, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due outbox has waited.
    pub oldest_due_age_seconds: f64,
    /// Whether there may be more that are due, leased or expired than were counted.
    pub more_due: bool,
    /// Whether there may be more that are scheduled than were counted.
    pub more_scheduled: bool,
    /// Whether there may be more that are parked than were counted.
    pub more_parked: bool,
}

/// What is pending now.
///
/// # Errors
///
/// See [`Fault`].
pub async fn backlog(client: &impl GenericClient) -> Result<Backlog, Fault> {
    let row = client.query_typed_one(BACKLOG, &[]).await?;
    Ok(Backlog {
        total: row.try_get("total")?,
        total_most: row.try_get("total_most")?,
        estimate: row.try_get("estimate")?,
        rail_most: row.try_get("rail_most")?,
        rails: row.try_get::<_, Json<_>>("rails")?.0,
    })
}
