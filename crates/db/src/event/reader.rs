//! Reads of the event lane for the CLI, the API and the dashboard.
//!
//! The login needs the role `symphony_readonly` or `symphony_auditor`. `symphony_operator` may read the totals and the
//! errors, `symphony_executor` the totals. Only the auditor may read a payload.

mod backlog;
mod list;
mod recent_stats;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use super::EventId;
use crate::BatchSize;
use crate::error::DatabaseError;
pub use backlog::{EventBacklog, backlog};
pub use list::{EventSearch, list, payload};
pub use recent_stats::{RECENT_STATS, recent_stats};

/// The name of the schema is part of a contract, so another application may own it, and its views would run with the
/// reader's privileges. If Symphony owns it, no other login can replace it.
const CHECK_OWNER: &str = "\
    do $$ begin \
      if not exists (select from pg_catalog.pg_namespace n join pg_catalog.pg_roles r on r.oid = n.nspowner \
                     where n.nspname = 'm10_recovery' and r.rolname = 'symphony_control') then \
        raise exception using errcode = '3F000', message = 'the event lane is not installed in this database'; \
      end if; \
    end $$";
// An age may be a float, because it is only displayed.
macro_rules! select_status {
    ($source:literal) => {
        concat!(
            "select due, claimed, stuck, scheduled, oldest_pending_age_seconds::float8, oldest_due_age_seconds::float8, \
                    aggregate_types, by_aggregate_type, more_due, more_claimed, more_stuck, more_scheduled, estimate \
             from ",
            $source
        )
    };
}

const STATUS: &str = select_status!("m10_recovery.outbox_status");
const EXACT_STATUS: &str = select_status!("symphony.event_backlog(null)");
const EVENT: &str = "\
    select id, aggregate_type, aggregate_id, event_type, created_at, processed_at, retry_count, process_after, \
           claimed_at, claimed_by \
    from m10_recovery.outbox \
    where id = $1";
const ERRORS: &str = "\
    select event_id, retry_count, succeeded, processor_id, error, created_at \
    from m10_recovery.outbox_errors \
    where event_id = $1 \
    order by error_id desc \
    limit $2";

/// The totals of all unprocessed events. Counts stop at 10,000 of each kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Events that are due.
    pub due: i64,
    /// Events under a claim of at most 5 minutes.
    pub claimed: i64,
    /// Events under an older claim, which the next claim takes over.
    pub stuck: i64,
    /// Events whose retry is due later.
    pub scheduled: i64,
    /// The age of the oldest unprocessed event, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due event has been due.
    pub oldest_due_age_seconds: f64,
    /// The number of aggregate types with such events.
    pub aggregate_types: i64,
    /// The same for the hundred types with the most counted rows.
    pub by_aggregate_type: Vec<TypeStatus>,
    /// Whether the count of due events reached its limit: it is a lower bound.
    pub more_due: bool,
    /// The same of claimed events.
    pub more_claimed: bool,
    /// The same of stuck events.
    pub more_stuck: bool,
    /// The same of scheduled events.
    pub more_scheduled: bool,
    /// All unprocessed events: their number, or PostgreSQL's estimate if a count reached its limit.
    pub estimate: i64,
}

impl Status {
    /// Whether a count reached its limit.
    #[must_use]
    pub const fn is_capped(&self) -> bool {
        self.more_due || self.more_claimed || self.more_stuck || self.more_scheduled
    }
}

/// The totals of one aggregate type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeStatus {
    /// Its name.
    pub aggregate_type: String,
    /// Events that are due.
    pub due: i64,
    /// Events under a claim of at most 5 minutes.
    pub claimed: i64,
    /// Events under an older claim, which the next claim takes over.
    pub stuck: i64,
    /// Events whose retry is due later.
    pub scheduled: i64,
    /// The age of the oldest unprocessed event, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due event has been due.
    pub oldest_due_age_seconds: f64,
}

/// One event and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct EventState {
    /// Its number.
    pub id: EventId,
    /// The aggregate type.
    pub aggregate_type: String,
    /// The aggregate id.
    pub aggregate_id: String,
    /// The event type.
    pub event_type: String,
    /// When it was published.
    pub created_at: Timestamp,
    /// When it was processed.
    pub processed_at: Option<Timestamp>,
    /// The number of failures so far.
    pub retry_count: i32,
    /// When it is due again.
    pub process_after: Option<Timestamp>,
    /// When it was claimed.
    pub claimed_at: Option<Timestamp>,
    /// The claim that holds it, or that processed it.
    pub claimed_by: Option<String>,
}

/// A recorded error of an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct EventError {
    /// The event.
    pub event_id: EventId,
    /// The number of failures, including this one.
    pub retry_count: i32,
    /// Whether the event was processed nevertheless.
    pub succeeded: bool,
    /// The claim that reported it.
    pub processor_id: String,
    /// The error, with personal data masked.
    pub error: String,
    /// When it was recorded.
    pub created_at: Timestamp,
}

/// The current totals, in a time that does not grow with the backlog.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn status(client: &impl GenericClient) -> Result<Status, DatabaseError> {
    read_status(client, STATUS).await
}

/// The current totals with exact counts: it reads every unprocessed event.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn exact_status(client: &impl GenericClient) -> Result<Status, DatabaseError> {
    read_status(client, EXACT_STATUS).await
}

async fn read_status(client: &impl GenericClient, query: &str) -> Result<Status, DatabaseError> {
    client.batch_execute(CHECK_OWNER).await?;
    let row = client.query_typed_one(query, &[]).await?;
    Ok(Status {
        due: row.try_get("due")?,
        claimed: row.try_get("claimed")?,
        stuck: row.try_get("stuck")?,
        scheduled: row.try_get("scheduled")?,
        oldest_pending_age_seconds: row.try_get("oldest_pending_age_seconds")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        aggregate_types: row.try_get("aggregate_types")?,
        by_aggregate_type: row.try_get::<_, Json<_>>("by_aggregate_type")?.0,
        more_due: row.try_get("more_due")?,
        more_claimed: row.try_get("more_claimed")?,
        more_stuck: row.try_get("more_stuck")?,
        more_scheduled: row.try_get("more_scheduled")?,
        estimate: row.try_get("estimate")?,
    })
}

/// One event; none if there is no such event.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn event(client: &impl GenericClient, id: EventId) -> Result<Option<EventState>, DatabaseError> {
    client.batch_execute(CHECK_OWNER).await?;
    let row = client.query_typed_opt(EVENT, &[(&id.0, Type::INT8)]).await?;
    row.as_ref().map(state).transpose()
}

/// The recorded errors of one event, latest first.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn errors(
    client: &impl GenericClient,
    id: EventId,
    most: BatchSize,
) -> Result<Vec<EventError>, DatabaseError> {
    client.batch_execute(CHECK_OWNER).await?;
    let most = i64::from(most.get());
    let rows = client.query_typed(ERRORS, &[(&id.0, Type::INT8), (&most, Type::INT8)]).await?;
    rows.iter().map(event_error).collect()
}

fn state(row: &Row) -> Result<EventState, DatabaseError> {
    Ok(EventState {
        id: EventId(row.try_get("id")?),
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        event_type: row.try_get("event_type")?,
        created_at: row.try_get("created_at")?,
        processed_at: row.try_get("processed_at")?,
        retry_count: row.try_get("retry_count")?,
        process_after: row.try_get("process_after")?,
        claimed_at: row.try_get("claimed_at")?,
        claimed_by: row.try_get("claimed_by")?,
    })
}

fn event_error(row: &Row) -> Result<EventError, DatabaseError> {
    Ok(EventError {
        event_id: EventId(row.try_get("event_id")?),
        retry_count: row.try_get("retry_count")?,
        succeeded: row.try_get("succeeded")?,
        processor_id: row.try_get("processor_id")?,
        error: row.try_get("error")?,
        created_at: row.try_get("created_at")?,
    })
}
