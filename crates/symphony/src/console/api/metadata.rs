//! The metadata lane: what is not published, entries, and one with the versions of its entity.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_outbox::Payload;
use symphony_outbox::metadata::reading::{self, MetadataBacklog, MetadataEntry, MetadataSearch, Place};
use symphony_outbox::metadata::{EntryId, Status};

use crate::console::access::Scope;
use crate::console::endpoint::{Endpoint, Nothing};
use crate::console::given::{Asked, EntryInPath, asked};
use crate::console::paging::{self, Kind, Page};
use crate::console::problem::Problem;
use crate::console::{Console, Desk};

/// How many versions of an entity are told.
const VERSIONS: i32 = 50;

/// What to look for. What is left out is not asked.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MetadataQuery {
    /// What kind of entity it is about.
    pub(crate) entity_type: Option<String>,
    /// Which one of that kind. With the type, its versions come the latest first.
    pub(crate) entity_id: Option<String>,
    /// What it is doing. DLQ and PUBLISHED come from the latest end backwards, PROCESSING from the oldest claim on, FAILED by when it is tried again.
    pub(crate) status: Option<Status>,
    /// How its error begins: a code such as LEASE_EXPIRED, or the first words.
    pub(crate) error: Option<String>,
    /// Created at this moment or later.
    pub(crate) from: Option<Timestamp>,
    /// Created before this moment.
    pub(crate) to: Option<Timestamp>,
    /// At most so many, 1 to 200; 50 if it is left out.
    pub(crate) limit: Option<i32>,
    /// Where a page before this one ended.
    pub(crate) cursor: Option<String>,
}

/// One entry, and the others of its entity.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct MetadataStory {
    /// The entry as it is now. Of its failures it keeps the number and the last.
    pub(crate) entry: MetadataEntry,
    /// The versions of its entity, this one among them, the latest first; at most 50.
    pub(crate) versions: Vec<MetadataEntry>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<MetadataQuery, Page<MetadataEntry>, _>(
            "/metadata",
            Scope::Read,
            "Search entries of metadata, the newest first unless a status is asked for.",
            list,
        ),
        Endpoint::get::<Nothing, MetadataBacklog, _>(
            "/metadata-backlog",
            Scope::Read,
            "How many entries of metadata are not published.",
            backlog,
        ),
        Endpoint::get::<Nothing, MetadataStory, _>(
            "/metadata/{entry_id}",
            Scope::Read,
            "One entry of metadata, and the versions of its entity.",
            one,
        ),
        Endpoint::get::<Nothing, serde_json::Value, _>(
            "/metadata/{entry_id}/payload",
            Scope::Audit,
            "What the second store is given.",
            payload,
        ),
    ]
}

impl MetadataQuery {
    /// The page that is asked for.
    pub(crate) async fn page(self, desk: &Console) -> Result<Page<MetadataEntry>, Problem> {
        let limit = paging::limit(self.limit)?;
        let place = paging::place(Kind::Metadata, self.cursor.as_deref())?;
        let search = MetadataSearch {
            entity_type: asked("entity_type", self.entity_type)?,
            entity_id: asked("entity_id", self.entity_id)?,
            status: self.status,
            error: asked("error", self.error)?,
            from: self.from,
            to: self.to,
            place: place.as_deref().map(read_place).transpose()?,
        };
        let page = desk.database.read(async |client| reading::search(client, &search, limit).await).await?;
        let next_cursor = page.next.map(|next| paging::cursor(Kind::Metadata, &written(next)));
        Ok(Page { items: page.entries, next_cursor })
    }
}

/// A place in a cursor: microseconds, which is what the database keeps, and the id.
fn written(place: Place) -> Vec<u8> {
    [&place.at.as_microsecond().to_be_bytes()[..], place.id.0.as_bytes()].concat()
}

fn read_place(bytes: &[u8]) -> Result<Place, Problem> {
    let read = || {
        let (at, id) = bytes.split_first_chunk::<8>()?;
        let at = Timestamp::from_microsecond(i64::from_be_bytes(*at)).ok()?;
        Some(Place { at, id: EntryId(uuid::Uuid::from_slice(id).ok()?) })
    };
    read().ok_or_else(|| Problem::bad("the cursor is not one that this list gave out"))
}

/// One entry with the versions of its entity.
pub(crate) async fn metadata_story(desk: &Console, id: EntryId) -> Result<MetadataStory, Problem> {
    let read = async |client: &_| {
        let Some(entry) = reading::entry_of_entity(client, id).await? else { return Ok(None) };
        let search = MetadataSearch {
            entity_type: Some(entry.entity_type.clone()),
            entity_id: Some(entry.entity_id.clone()),
            ..MetadataSearch::default()
        };
        let versions = reading::search(client, &search, VERSIONS).await?.entries;
        Ok(Some(MetadataStory { entry, versions }))
    };
    desk.database.read(read).await?.ok_or_else(|| Problem::missing("entry of that id"))
}

/// The metadata of one entry.
pub(crate) async fn metadata_payload(desk: &Console, id: EntryId) -> Result<Payload, Problem> {
    let payload = desk.database.read(async |client| reading::metadata(client, id).await).await?;
    payload.ok_or_else(|| Problem::missing("entry of that id"))
}

async fn list(
    State(desk): State<Desk>,
    Asked(query): Asked<MetadataQuery>,
) -> Result<Json<Page<MetadataEntry>>, Problem> {
    Ok(Json(query.page(&desk).await?))
}

async fn backlog(State(desk): State<Desk>) -> Result<Json<MetadataBacklog>, Problem> {
    Ok(Json(desk.database.read(async |client| reading::backlog(client).await).await?))
}

async fn one(State(desk): State<Desk>, EntryInPath(id): EntryInPath) -> Result<Json<MetadataStory>, Problem> {
    Ok(Json(metadata_story(&desk, id).await?))
}

async fn payload(State(desk): State<Desk>, EntryInPath(id): EntryInPath) -> Result<Json<Payload>, Problem> {
    Ok(Json(metadata_payload(&desk, id).await?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_and_nothing_else_is_one() {
        let place = Place { at: "2026-05-03T09:30:00.123456Z".parse().unwrap(), id: EntryId(uuid::Uuid::max()) };
        assert_eq!(read_place(&written(place)).unwrap(), place);
        for wrong in [&[][..], &[0; 8], &[0; 23], &[0; 25], &[0x7f; 24]] {
            assert!(read_place(wrong).is_err(), "{wrong:?}");
        }
    }
}
