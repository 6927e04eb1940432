//! Reads of the metadata lane for producers, the CLI, the API and the dashboard.
//!
//! Every role but `symphony_auth` may find the entries of an entity. The other reads need `symphony_readonly`,
//! `symphony_auditor` or `symphony_operator`. Only the auditor may read the metadata itself. `symphony_executor` may
//! read the totals.

mod backlog;
mod list;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use super::{Entity, EntryId, Status};
use crate::BatchSize;
use crate::error::ClaimError;
use crate::error::DatabaseError;
pub use backlog::{MetadataBacklog, backlog, recent_stats};
pub use list::{MetadataCursor, MetadataEntry, MetadataSearch, entry, metadata, search};

const FIND: &str = "\
    select id, status::text, retry_count, max_retries, last_error, next_retry_at, processing_started_at, claimed_by, \
           processed_at, created_at, updated_at \
    from symphony.find_metadata_by_entity($1, $2, $3)";
// An age may be a float, because it is only displayed.
macro_rules! select_totals {
    ($source:literal) => {
        concat!(
            "select due, processing, stuck, scheduled, dlq, oldest_pending_age_seconds::float8, \
                    oldest_due_age_seconds::float8, entity_types, by_entity_type, more_due, more_processing, more_stuck, \
                    more_scheduled, estimate \
             from ",
            $source
        )
    };
}

const TOTALS: &str = select_totals!("symphony.metadata_outbox_status");
const EXACT_TOTALS: &str = select_totals!("symphony.metadata_backlog(null, null)");

/// An entry of a known entity, as [`find_by_entity`] returns it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EntryState {
    /// The entry.
    pub id: EntryId,
    /// Its status.
    pub status: Status,
    /// The number of failures so far.
    pub retry_count: i32,
    /// After how many failures it moves to the DLQ.
    pub max_retries: i32,
    /// The last error, with personal data masked.
    pub last_error: Option<String>,
    /// When it is due again.
    pub next_retry_at: Option<Timestamp>,
    /// When it was last claimed.
    pub processing_started_at: Option<Timestamp>,
    /// The worker that claimed it last.
    pub claimed_by: Option<String>,
    /// When it was published.
    pub processed_at: Option<Timestamp>,
    /// When it was created, which is its version.
    pub created_at: Timestamp,
    /// When its status last changed.
    pub updated_at: Timestamp,
}

/// The totals of all entries that are not published. Counts other than `dlq` stop at 10,000 of each kind.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Totals {
    /// Entries that are due.
    pub due: i64,
    /// Entries under a claim of at most 5 minutes.
    pub processing: i64,
    /// Entries under an older claim or without retries left, which the next repair requeues or moves to the DLQ.
    pub stuck: i64,
    /// Entries whose retry is due later.
    pub scheduled: i64,
    /// Entries in the DLQ.
    pub dlq: i64,
    /// The age of the oldest entry that is not terminal, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due entry has been due.
    pub oldest_due_age_seconds: f64,
    /// The number of entity types with such entries.
    pub entity_types: i64,
    /// The same for the hundred types with the most counted rows.
    pub by_entity_type: Vec<TypeTotals>,
    /// Whether the count of due entries reached its limit: it is a lower bound.
    pub more_due: bool,
    /// The same of processing entries.
    pub more_processing: bool,
    /// The same of stuck entries.
    pub more_stuck: bool,
    /// The same of scheduled entries.
    pub more_scheduled: bool,
    /// All pending entries: their number, or PostgreSQL's estimate if a count reached its limit.
    pub estimate: i64,
}

impl Totals {
    /// Whether a count reached its limit.
    #[must_use]
    pub const fn is_capped(&self) -> bool {
        self.more_due || self.more_processing || self.more_stuck || self.more_scheduled
    }
}

/// The totals of one entity type.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TypeTotals {
    /// Its name.
    pub entity_type: String,
    /// Entries that are due.
    pub due: i64,
    /// Entries under a claim of at most 5 minutes.
    pub processing: i64,
    /// Entries that the next repair requeues or moves to the DLQ.
    pub stuck: i64,
    /// Entries whose retry is due later.
    pub scheduled: i64,
    /// Entries in the DLQ.
    pub dlq: i64,
    /// The age of the oldest entry that is not terminal, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due entry has been due.
    pub oldest_due_age_seconds: f64,
}

/// The entries of an entity, latest first.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn find_by_entity(
    client: &impl GenericClient,
    entity: &Entity,
    most: BatchSize,
) -> Result<Vec<EntryState>, ClaimError> {
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

/// The current totals, in a time that does not grow with the backlog.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn totals(client: &impl GenericClient) -> Result<Totals, DatabaseError> {
    read_totals(client, TOTALS).await
}

/// The current totals with exact counts: it reads every entry that is not published.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn exact_totals(client: &impl GenericClient) -> Result<Totals, DatabaseError> {
    read_totals(client, EXACT_TOTALS).await
}

async fn read_totals(client: &impl GenericClient, query: &str) -> Result<Totals, DatabaseError> {
    let row = client.query_typed_one(query, &[]).await?;
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
        more_due: row.try_get("more_due")?,
        more_processing: row.try_get("more_processing")?,
        more_stuck: row.try_get("more_stuck")?,
        more_scheduled: row.try_get("more_scheduled")?,
        estimate: row.try_get("estimate")?,
    })
}

fn state(row: &Row) -> Result<EntryState, tokio_postgres::Error> {
    Ok(EntryState {
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
