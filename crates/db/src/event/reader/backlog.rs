//! The backlog: unprocessed events, with counts that stop at a limit.

use serde::Serialize;
use tokio_postgres::GenericClient;

use super::CHECK_OWNER;
use crate::error::DatabaseError;

// An age may be a float, because it is only displayed.
const BACKLOG: &str = "\
    select due, claimed, stuck, scheduled, oldest_pending_age_seconds::float8, oldest_due_age_seconds::float8, \
           more_due, more_claimed, more_stuck, more_scheduled \
    from symphony.event_backlog()";

/// The unprocessed events.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct EventBacklog {
    /// Events that are due.
    pub due: i64,
    /// Events under a claim of at most 5 minutes.
    pub claimed: i64,
    /// Events under an older claim, which the next claim takes over.
    pub stuck: i64,
    /// Events whose retry is due later.
    pub scheduled: i64,
    /// The age of the oldest counted event, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due or stuck event has been due.
    pub oldest_due_age_seconds: f64,
    /// Whether the count of due events reached its limit, 10,000 new ones and 10,000 retries: it is a lower bound.
    pub more_due: bool,
    /// Whether the count of claimed events reached its limit of 10,000.
    pub more_claimed: bool,
    /// Whether the count of stuck events reached its limit of 10,000.
    pub more_stuck: bool,
    /// Whether the count of scheduled events reached its limit of 10,000.
    pub more_scheduled: bool,
}

/// Counts the unprocessed events.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn backlog(client: &impl GenericClient) -> Result<EventBacklog, DatabaseError> {
    client.batch_execute(CHECK_OWNER).await?;
    let row = client.query_typed_one(BACKLOG, &[]).await?;
    Ok(EventBacklog {
        due: row.try_get("due")?,
        claimed: row.try_get("claimed")?,
        stuck: row.try_get("stuck")?,
        scheduled: row.try_get("scheduled")?,
        oldest_pending_age_seconds: row.try_get("oldest_pending_age_seconds")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        more_due: row.try_get("more_due")?,
        more_claimed: row.try_get("more_claimed")?,
        more_stuck: row.try_get("more_stuck")?,
        more_scheduled: row.try_get("more_scheduled")?,
    })
}
