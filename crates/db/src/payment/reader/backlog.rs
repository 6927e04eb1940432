//! The backlog: pending outboxes per rail, with counts that stop at a limit.

use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;
use tokio_postgres::types::Json;

use crate::error::DatabaseError;

const BACKLOG: &str = "select total, more, estimate, max_rows, rails from symphony.payment_backlog()";

/// The pending outboxes.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Backlog {
    /// The sum of all counts.
    pub total: i64,
    /// Whether a count reached its limit: the total is then a lower bound.
    pub more: bool,
    /// All pending outboxes: the total, or PostgreSQL's estimate if a count reached its limit.
    pub estimate: i64,
    /// The limit of each count of a rail.
    pub max_rows: i32,
    /// The rails, by name.
    pub rails: Vec<RailBacklog>,
}

/// The pending outboxes of one rail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct RailBacklog {
    /// Its name.
    pub rail_type: String,
    /// Whether it is paused: claims skip it.
    pub paused: bool,
    /// The epoch that holds it: claims skip it until an operator releases it; none if it is not held.
    pub held_since_epoch: Option<i64>,
    /// Whether each participant's payments are dispatched strictly in sequence (FIFO).
    pub ordered: bool,
    /// The in-flight limit: leases at once over all relayers; none means no limit.
    pub max_in_flight: Option<i32>,
    /// Outboxes that are due, regardless of pauses and in-flight limits.
    pub due: i64,
    /// Outboxes under a lease that has not expired.
    pub leased: i64,
    /// Outboxes whose lease has expired.
    pub expired: i64,
    /// Outboxes that are due later.
    pub scheduled: i64,
    /// Parked outboxes: claims skip them until the participant's head-of-line payment on this ordered rail has ended.
    pub parked: i64,
    /// The age of the oldest outbox, scheduled or not; a lower bound if a count reached its limit.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due outbox that is not parked has been due.
    pub oldest_due_age_seconds: f64,
    /// How long the oldest parked outbox has been due.
    pub oldest_parked_age_seconds: f64,
    /// Whether the counts of due, leased and expired outboxes reached the limit: they are lower bounds.
    pub more_due: bool,
    /// Whether the count of scheduled outboxes reached the limit.
    pub more_scheduled: bool,
    /// Whether the count of parked outboxes reached the limit.
    pub more_parked: bool,
}

/// Counts the pending outboxes.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn backlog(client: &impl GenericClient) -> Result<Backlog, DatabaseError> {
    let row = client.query_typed_one(BACKLOG, &[]).await?;
    Ok(Backlog {
        total: row.try_get("total")?,
        more: row.try_get("more")?,
        estimate: row.try_get("estimate")?,
        max_rows: row.try_get("max_rows")?,
        rails: row.try_get::<_, Json<_>>("rails")?.0,
    })
}
