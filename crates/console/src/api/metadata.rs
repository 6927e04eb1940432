//! The metadata lane: backlog, search, one entry with the versions of its entity, its payload.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_db::Payload;
use symphony_db::metadata::reader::{self, MetadataBacklog, MetadataCursor, MetadataEntry, MetadataSearch};
use symphony_db::metadata::{EntryId, Status};

use super::{ListQuery, list};
use crate::access::Scope;
use crate::endpoint::{Endpoint, NoParams};
use crate::extract::{PathId, optional_name};
use crate::paging::{self, CursorKind, Page};
use crate::problem::Problem;
use crate::{Console, ConsoleState};

/// The most versions of an entity that the API returns.
const MAX_VERSIONS: i32 = 50;

/// A search for metadata entries. Fields that are left out do not filter.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetadataQuery {
    /// The type of the entity.
    pub(crate) entity_type: Option<String>,
    /// The id of the entity. With entity_type the result is ordered from the latest version.
    pub(crate) entity_id: Option<String>,
    /// The status. DLQ and PUBLISHED are ordered from the latest end, PROCESSING from the oldest claim, FAILED by the
    /// next retry.
    pub(crate) status: Option<Status>,
    /// A prefix of the last error: a code such as LEASE_EXPIRED, or the first words.
    pub(crate) error: Option<String>,
    /// Created at this time or later.
    pub(crate) from: Option<Timestamp>,
    /// Created before this time.
    pub(crate) to: Option<Timestamp>,
    /// Items per page, 1 to 200; 50 if left out.
    pub(crate) limit: Option<i32>,
    /// The next_cursor of the page before.
    pub(crate) cursor: Option<String>,
}

/// One entry and the versions of its entity.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MetadataDetails {
    /// The entry. It keeps the number of its failures and the last error.
    pub(crate) entry: MetadataEntry,
    /// The versions of its entity, this one included, latest first; at most 50.
    pub(crate) versions: Vec<MetadataEntry>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<MetadataQuery, Page<MetadataEntry>, _>(
            "/metadata",
            Scope::Read,
            "Search metadata entries, newest first unless a status is given.",
            list::<MetadataQuery>,
        ),
        Endpoint::get::<NoParams, MetadataBacklog, _>(
            "/metadata-backlog",
            Scope::Read,
            "The number of metadata entries that are not published.",
            backlog,
        ),
        Endpoint::get::<NoParams, MetadataDetails, _>(
            "/metadata/{entry_id}",
            Scope::Read,
            "One metadata entry and the versions of its entity.",
            one,
        ),
        Endpoint::get::<NoParams, serde_json::Value, _>(
            "/metadata/{entry_id}/payload",
            Scope::Audit,
            "The metadata that is sent to the second store.",
            payload,
        ),
    ]
}

impl ListQuery for MetadataQuery {
    type Item = MetadataEntry;

    async fn page(self, console: &Console) -> Result<Page<MetadataEntry>, Problem> {
        let limit = paging::limit(self.limit)?;
        let key = paging::decode(CursorKind::Metadata, self.cursor.as_deref())?;
        let search = MetadataSearch {
            entity_type: optional_name("entity_type", self.entity_type)?,
            entity_id: optional_name("entity_id", self.entity_id)?,
            status: self.status,
            error: optional_name("error", self.error)?,
            from: self.from,
            to: self.to,
            cursor: key.as_deref().map(decode_place).transpose()?,
        };
        let page = console.database.read(async |client| reader::search(client, &search, limit).await).await?;
        let next_cursor = page.next.map(|next| paging::encode(CursorKind::Metadata, &encode_place(next)));
        Ok(Page { items: page.rows, next_cursor })
    }
}

/// A cursor key: the time in microseconds, which is the resolution of PostgreSQL, and the id.
fn encode_place(place: MetadataCursor) -> Vec<u8> {
    [&place.at.as_microsecond().to_be_bytes()[..], place.id.0.as_bytes()].concat()
}

fn decode_place(bytes: &[u8]) -> Result<MetadataCursor, Problem> {
    let read = || {
        let (at, id) = bytes.split_first_chunk::<8>()?;
        let at = Timestamp::from_microsecond(i64::from_be_bytes(*at)).ok()?;
        Some(MetadataCursor { at, id: EntryId(uuid::Uuid::from_slice(id).ok()?) })
    };
    read().ok_or_else(paging::invalid_cursor)
}

/// One entry with the versions of its entity.
pub(crate) async fn metadata_details(console: &Console, id: EntryId) -> Result<MetadataDetails, Problem> {
    let read = async |client: &_| {
        let Some(entry) = reader::entry(client, id).await? else { return Ok(None) };
        let search = MetadataSearch {
            entity_type: Some(entry.entity_type.clone()),
            entity_id: Some(entry.entity_id.clone()),
            ..MetadataSearch::default()
        };
        let versions = reader::search(client, &search, MAX_VERSIONS).await?.rows;
        Ok(Some(MetadataDetails { entry, versions }))
    };
    console.database.read(read).await?.ok_or_else(|| Problem::not_found("metadata entry with this id"))
}

/// The metadata of one entry.
pub(crate) async fn metadata_payload(console: &Console, id: EntryId) -> Result<Payload, Problem> {
    let payload = console.database.read(async |client| reader::metadata(client, id).await).await?;
    payload.ok_or_else(|| Problem::not_found("metadata entry with this id"))
}

async fn backlog(State(console): State<ConsoleState>) -> Result<Json<MetadataBacklog>, Problem> {
    Ok(Json(console.database.read(async |client| reader::backlog(client).await).await?))
}

async fn one(
    State(console): State<ConsoleState>,
    PathId(id): PathId<EntryId>,
) -> Result<Json<MetadataDetails>, Problem> {
    Ok(Json(metadata_details(&console, id).await?))
}

async fn payload(
    State(console): State<ConsoleState>,
    PathId(id): PathId<EntryId>,
) -> Result<Json<Payload>, Problem> {
    Ok(Json(metadata_payload(&console, id).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_key_decodes_to_the_encoded_place_and_other_bytes_are_refused() {
        let place =
            MetadataCursor { at: "2026-05-03T09:30:00.123456Z".parse().unwrap(), id: EntryId(uuid::Uuid::max()) };
        assert_eq!(decode_place(&encode_place(place)).unwrap(), place);
        for wrong in [&[][..], &[0; 8], &[0; 23], &[0; 25], &[0x7f; 24]] {
            assert!(decode_place(wrong).is_err(), "{wrong:?}");
        }
    }
}
