//! Entries as people look for them, one with its entity, and the metadata of one.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use crate::Payload;
use crate::error::Fault;
use crate::metadata::{EntryId, Status};

const SEARCH: &str = "\
    select entries, next_at, next_id \
    from symphony.search_metadata_entries($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const ONE: &str = "select to_jsonb(e.*) from symphony.metadata_outbox_entries e where e.id = $1";
const METADATA: &str = "select symphony.read_metadata($1)";

/// An entry as it is now, with its entity.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct MetadataEntry {
    /// The entry.
    pub id: EntryId,
    /// What kind of entity it is about.
    pub entity_type: String,
    /// Which one of that kind.
    pub entity_id: String,
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

/// What to look for. What is left out is not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MetadataSearch {
    /// What kind of entity it is about.
    pub entity_type: Option<String>,
    /// Which one of that kind.
    pub entity_id: Option<String>,
    /// What it is doing.
    pub status: Option<Status>,
    /// How its error begins.
    pub error: Option<String>,
    /// Created at this moment or later.
    pub from: Option<Timestamp>,
    /// Created before this moment.
    pub to: Option<Timestamp>,
    /// Where a page of the same search ended.
    pub place: Option<Place>,
}

/// Where a page ended. What its moment is depends on what was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The moment by which the last entry stood in its order.
    pub at: Timestamp,
    /// The last entry.
    pub id: EntryId,
}

/// A page of entries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetadataPage {
    /// What fits, in the order of the search.
    pub entries: Vec<MetadataEntry>,
    /// Where to go on; none where there is no more.
    pub next: Option<Place>,
}

/// At most so many entries that fit, 1 to 200.
///
/// # Errors
///
/// See [`Fault`].
pub async fn search(
    client: &impl GenericClient,
    search: &MetadataSearch,
    at_most: i32,
) -> Result<MetadataPage, Fault> {
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
                (&search.place.map(|place| place.at), Type::TIMESTAMPTZ),
                (&search.place.map(|place| place.id.0), Type::UUID),
                (&at_most, Type::INT4),
            ],
        )
        .await?;
    let (at, id): (Option<Timestamp>, Option<uuid::Uuid>) = (row.try_get("next_at")?, row.try_get("next_id")?);
    Ok(MetadataPage {
        entries: row.try_get::<_, Json<_>>("entries")?.0,
        next: at.zip(id).map(|(at, id)| Place { at, id: EntryId(id) }),
    })
}

/// One entry with its entity; none where there is none of that id.
///
/// # Errors
///
/// See [`Fault`].
pub async fn entry_of_entity(client: &impl GenericClient, id: EntryId) -> Result<Option<MetadataEntry>, Fault> {
    let row = client.query_typed_opt(ONE, &[(&id.0, Type::UUID)]).await?;
    row.map(|row| Ok(row.try_get::<_, Json<_>>(0)?.0)).transpose()
}

/// What the second store is to hold; none where there is no entry of that id. For `symphony_auditor`.
///
/// # Errors
///
/// See [`Fault`].
pub async fn metadata(client: &impl GenericClient, id: EntryId) -> Result<Option<Payload>, Fault> {
    let row = client.query_typed_one(METADATA, &[(&id.0, Type::UUID)]).await;
    let row = row.map_err(|error| Fault::from(error).for_role("symphony_auditor"))?;
    Ok(row.try_get::<_, Option<Json<Payload>>>(0)?.map(|Json(metadata)| metadata))
}
