//! What people, dashboards and careful producers may see. All of it but the metadata itself can be printed and serialised.
//!
//! What an entity has is for every role but `symphony_auth`; the rest for `symphony_readonly`, `symphony_auditor` and
//! `symphony_operator`; the metadata itself is for the auditor alone, the totals for `symphony_executor` too.

mod backlog;
mod list;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use super::{Entity, EntryId, Status};
use crate::BatchSize;
use crate::error::Fault;
use crate::error::metadata::FindError;
pub use backlog::{MetadataBacklog, backlog, pulse};
pub use list::{MetadataEntry, MetadataPage, MetadataSearch, Place, entry_of_entity, metadata, search};

const FIND: &str = "\
    select id, status::text, retry_count, max_retries, last_error, next_retry_at, processing_started_at, claimed_by, \
           processed_at, created_at, updated_at \
    from symphony.find_metadata_by_entity($1, $2, $3)";
const ENTRY: &str = "\
    select id, status::text, retry_count, max_retries, last_error, next_retry_at, processing_started_at, claimed_by, \
           processed_at, created_at, updated_at \
    from symphony.metadata_outbox_entries \
    where id = $1";
// An age may be a float: it is read by gauges and people, and nobody adds it up.
const STATUS: &str = "\
    select due, processing, stuck, scheduled, dlq, oldest_pending_age_seconds::float8, oldest_due_age_seconds::float8, \
           entity_types, by_entity_type \
    from symphony.metadata_outbox_status";

/// One entry as it is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct State {
    /// The entry.
    pub id: EntryId,
    /// What it is doing.
    pub status: Status,
    /// Failures so far.
    pub retry_count: i32,
    /// Failures after which it is not tried again.
    pub max_retries: i32,
    /// Why it failed last, or why it is dead, cleaned of personal data.
    pub last_error: Option<String>,
    /// When it may be claimed again.
    pub next_retry_at: Option<Timestamp>,
    /// When it was claimed last.
    pub processing_started_at: Option<Timestamp>,
    /// Who claimed it last.
    pub claimed_by: Option<String>,
    /// When it was published.
    pub processed_at: Option<Timestamp>,
    /// When it was created: its version.
    pub created_at: Timestamp,
    /// When its status changed last.
    pub updated_at: Timestamp,
}

/// The totals over all entries that are not published.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// Entries that the next claim may take.
    pub due: i64,
    /// Entries under a claim that is not older than 5 minutes.
    pub processing: i64,
    /// Entries under an older claim, or without retries left, which the next repair ends.
    pub stuck: i64,
    /// Entries that failed and whose time has not come again.
    pub scheduled: i64,
    /// Entries that were given up.
    pub dlq: i64,
    /// How long ago the oldest entry that has not ended was created, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the entry that could be taken longest could be so.
    pub oldest_due_age_seconds: f64,
    /// How many entity types have such entries.
    pub entity_types: i64,
    /// The same for the hundred of them that have most.
    pub by_entity_type: Vec<TypeTotals>,
}

/// The totals of one entity type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeTotals {
    /// Its name.
    pub entity_type: String,
    /// Entries that the next claim may take.
    pub due: i64,
    /// Entries under a claim that is not older than 5 minutes.
    pub processing: i64,
    /// Entries that the next repair ends.
    pub stuck: i64,
    /// Entries that failed and whose time has not come again.
    pub scheduled: i64,
    /// Entries that were given up.
    pub dlq: i64,
    /// How long ago the oldest entry that has not ended was created, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the entry that could be taken longest could be so.
    pub oldest_due_age_seconds: f64,
}

/// The entries of an entity, the latest first.
///
/// # Errors
///
/// See [`FindError`].
pub async fn find_by_entity(
    client: &impl GenericClient,
    entity: &Entity,
    most: BatchSize,
) -> Result<Vec<State>, FindError> {
    let rows = client
        .query_typed(
            FIND,
            &[
                (&entity.entity_id(), Type::TEXT),
                (&entity.entity_type(), Type::TEXT),
                (&i32::from(most.get()), Type::INT4),
            ],
        )
        .await?;
    Ok(rows.iter().map(state).collect::<Result<_, _>>()?)
}

/// One entry; none where there is none of that id.
///
/// # Errors
///
/// See [`Fault`].
pub async fn entry(client: &impl GenericClient, id: EntryId) -> Result<Option<State>, Fault> {
    let row = client.query_typed_opt(ENTRY, &[(&id.0, Type::UUID)]).await?;
    Ok(row.as_ref().map(state).transpose()?)
}

/// The totals, now.
///
/// # Errors
///
/// See [`Fault`].
pub async fn totals(client: &impl GenericClient) -> Result<Totals, Fault> {
    let row = client.query_typed_one(STATUS, &[]).await?;
    Ok(Totals {
        due: row.try_get("due")?,
        processing: row.try_get("processing")?,
        stuck: row.try_get("stuck")?,
        scheduled: row.try_get("scheduled")?,
        dlq: row.try_get("dlq")?,
        oldest_pending_age_seconds: row.try_get("oldest_pending_age_seconds")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        entity_types: row.try_get("entity_types")?,
        by_entity_type: row.try_get::<_, Json<_>>("by_entity_type")?.0,
    })
}

fn state(row: &Row) -> Result<State, tokio_postgres::Error> {
    Ok(State {
        id: EntryId(row.try_get("id")?),
        status: row.try_get("status")?,
        retry_count: row.try_get("retry_count")?,
        max_retries: row.try_get("max_retries")?,
        last_error: row.try_get("last_error")?,
        next_retry_at: row.try_get("next_retry_at")?,
        processing_started_at: row.try_get("processing_started_at")?,
        claimed_by: row.try_get("claimed_by")?,
        processed_at: row.try_get("processed_at")?,
        created_at: row.try_get("created_at")?,
        updated_at: row.try_get("updated_at")?,
    })
}
