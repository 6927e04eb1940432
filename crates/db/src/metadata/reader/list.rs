//! Searches entries, and reads one entry and its metadata.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use crate::error::DatabaseError;
use crate::metadata::{EntryId, Status};
use crate::{Page, Payload};

const SEARCH: &str = "\
    select entries, next_at, next_id \
    from symphony.search_metadata_entries($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const ENTRY: &str = "select to_jsonb(e.*) from symphony.metadata_outbox_entries e where e.id = $1";
const METADATA: &str = "select symphony.read_metadata($1)";

/// An entry with its entity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct MetadataEntry {
    /// The entry.
    pub id: EntryId,
    /// The entity type.
    pub entity_type: String,
    /// The entity id.
    pub entity_id: String,
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

/// A search; a field that is none matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataSearch {
    /// The entity type.
    pub entity_type: Option<String>,
    /// The entity id.
    pub entity_id: Option<String>,
    /// Its status.
    pub status: Option<Status>,
    /// The start of its last error.
    pub error: Option<String>,
    /// Created at this time or later.
    pub from: Option<Timestamp>,
    /// Created before this time.
    pub to: Option<Timestamp>,
    /// The cursor of the previous page of the same search.
    pub cursor: Option<MetadataCursor>,
}

/// The end of a page. The order of the search decides which time of the entry `at` is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetadataCursor {
    /// The time of the last entry that the search sorts by.
    pub at: Timestamp,
    /// The id of the last entry.
    pub id: EntryId,
}

/// A page of at most `at_most` matching entries, 1 to 200.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn search(
    client: &impl GenericClient,
    search: &MetadataSearch,
    at_most: i32,
) -> Result<Page<MetadataEntry, MetadataCursor>, DatabaseError> {
    let row = client
        .query_typed_one(
            SEARCH,
            &[
                (&search.entity_type, Type::TEXT),
                (&search.entity_id, Type::TEXT),
                (&search.status.map(Status::as_str), Type::TEXT),
                (&search.error, Type::TEXT),
                (&search.from, Type::TIMESTAMPTZ),
                (&search.to, Type::TIMESTAMPTZ),
                (&search.cursor.map(|cursor| cursor.at), Type::TIMESTAMPTZ),
                (&search.cursor.map(|cursor| cursor.id.0), Type::UUID),
                (&at_most, Type::INT4),
            ],
        )
        .await?;
    let (at, id): (Option<Timestamp>, Option<uuid::Uuid>) = (row.try_get("next_at")?, row.try_get("next_id")?);
    Ok(Page {
        rows: row.try_get::<_, Json<_>>("entries")?.0,
        examined: None,
        next: at.zip(id).map(|(at, id)| MetadataCursor { at, id: EntryId(id) }),
    })
}

/// One entry; none if there is none with this id.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn entry(client: &impl GenericClient, id: EntryId) -> Result<Option<MetadataEntry>, DatabaseError> {
    let row = client.query_typed_opt(ENTRY, &[(&id.0, Type::UUID)]).await?;
    row.map(|row| Ok(row.try_get::<_, Json<_>>(0)?.0)).transpose()
}

/// The metadata of an entry; none if there is no such entry. For `symphony_auditor`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn metadata(client: &impl GenericClient, id: EntryId) -> Result<Option<Payload>, DatabaseError> {
    let row = client.query_typed_one(METADATA, &[(&id.0, Type::UUID)]).await;
    let row = row.map_err(|error| DatabaseError::from(error).for_role("symphony_auditor"))?;
    Ok(row.try_get::<_, Option<Json<Payload>>>(0)?.map(|Json(metadata)| metadata))
}
