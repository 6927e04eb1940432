//! What people and dashboards may see. All of it but a payload can be printed and serialised.
//!
//! For a login with the role `symphony_readonly` or `symphony_auditor`; `symphony_operator` may read the totals and the
//! errors, `symphony_executor` the totals. A payload is for the auditor alone.

mod backlog;
mod list;
mod pulse;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use super::EventId;
use crate::BatchSize;
use crate::error::Fault;
pub use backlog::{BACKLOG, EventBacklog, backlog};
pub use list::{EventPage, EventSearch, list, payload};
pub use pulse::{PULSE, pulse};

// An age may be a float: it is read by gauges and people, and nobody adds it up.
/// The schema's name belongs to a contract, so it may be another application's, whose views would run with the reader's rights.
/// Once it is ours, nobody else can put another in its place.
const IS_OURS: &str = "\
    do $$ begin \
      if not exists (select from pg_catalog.pg_namespace n join pg_catalog.pg_roles r on r.oid = n.nspowner \
                     where n.nspname = 'm10_recovery' and r.rolname = 'symphony_control') then \
        raise exception using errcode = '3F000', message = 'the event lane is not installed in this database'; \
      end if; \
    end $$";
const STATUS: &str = "\
    select due, claimed, stuck, scheduled, oldest_pending_age_seconds::float8, oldest_due_age_seconds::float8, \
           aggregate_types, by_aggregate_type \
    from m10_recovery.outbox_status";
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

/// The totals over all events that are not processed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Events that nobody has claimed and whose time has come.
    pub due: i64,
    /// Events under a claim that is not older than 5 minutes.
    pub claimed: i64,
    /// Events under an older claim, which the next claim takes over.
    pub stuck: i64,
    /// Events that failed and whose time has not come again.
    pub scheduled: i64,
    /// How long ago the oldest unprocessed event was published, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the event that could be claimed longest could be so.
    pub oldest_due_age_seconds: f64,
    /// How many aggregate types have such events.
    pub aggregate_types: i64,
    /// The same for the hundred of them that have most.
    pub by_aggregate_type: Vec<TypeStatus>,
}

/// The totals of one aggregate type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeStatus {
    /// Its name.
    pub aggregate_type: String,
    /// Events that nobody has claimed and whose time has come.
    pub due: i64,
    /// Events under a claim that is not older than 5 minutes.
    pub claimed: i64,
    /// Events under an older claim.
    pub stuck: i64,
    /// Events that failed and whose time has not come again.
    pub scheduled: i64,
    /// How long ago the oldest unprocessed event was published, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the event that could be claimed longest could be so.
    pub oldest_due_age_seconds: f64,
}

/// One event as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct State {
    /// Its number.
    pub id: EventId,
    /// What kind of thing it happened to.
    pub aggregate_type: String,
    /// Which one of that kind.
    pub aggregate_id: String,
    /// What happened.
    pub event_type: String,
    /// When it was published.
    pub created_at: Timestamp,
    /// When it was completed.
    pub processed_at: Option<Timestamp>,
    /// Failures so far.
    pub retry_count: i32,
    /// When it may be claimed again.
    pub process_after: Option<Timestamp>,
    /// When it was claimed.
    pub claimed_at: Option<Timestamp>,
    /// The processor that holds it, or that completed it.
    pub claimed_by: Option<String>,
}

/// What a processor said about an event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Said {
    /// The event.
    pub event_id: EventId,
    /// Failures so far, with this one counted.
    pub retry_count: i32,
    /// Whether the event was completed all the same.
    pub succeeded: bool,
    /// Who said it.
    pub processor_id: String,
    /// What, cleaned of personal data.
    pub error: String,
    /// When.
    pub created_at: Timestamp,
}

/// The totals, now.
///
/// # Errors
///
/// See [`Fault`].
pub async fn status(client: &impl GenericClient) -> Result<Status, Fault> {
    client.batch_execute(IS_OURS).await?;
    let row = client.query_typed_one(STATUS, &[]).await?;
    Ok(Status {
        due: row.try_get("due")?,
        claimed: row.try_get("claimed")?,
        stuck: row.try_get("stuck")?,
        scheduled: row.try_get("scheduled")?,
        oldest_pending_age_seconds: row.try_get("oldest_pending_age_seconds")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        aggregate_types: row.try_get("aggregate_types")?,
        by_aggregate_type: row.try_get::<_, Json<_>>("by_aggregate_type")?.0,
    })
}

/// One event; none where there is none of that number.
///
/// # Errors
///
/// See [`Fault`].
pub async fn event(client: &impl GenericClient, id: EventId) -> Result<Option<State>, Fault> {
    client.batch_execute(IS_OURS).await?;
    let row = client.query_typed_opt(EVENT, &[(&id.0, Type::INT8)]).await?;
    row.as_ref().map(state).transpose()
}

/// What was said about one event, the latest first.
///
/// # Errors
///
/// See [`Fault`].
pub async fn errors(client: &impl GenericClient, id: EventId, most: BatchSize) -> Result<Vec<Said>, Fault> {
    client.batch_execute(IS_OURS).await?;
    let most = i64::from(most.get());
    let rows = client.query_typed(ERRORS, &[(&id.0, Type::INT8), (&most, Type::INT8)]).await?;
    rows.iter().map(said).collect()
}

fn state(row: &Row) -> Result<State, Fault> {
    Ok(State {
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

fn said(row: &Row) -> Result<Said, Fault> {
    Ok(Said {
        event_id: EventId(row.try_get("event_id")?),
        retry_count: row.try_get("retry_count")?,
        succeeded: row.try_get("succeeded")?,
        processor_id: row.try_get("processor_id")?,
        error: row.try_get("error")?,
        created_at: row.try_get("created_at")?,
    })
}
