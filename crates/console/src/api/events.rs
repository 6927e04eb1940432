//! The event lane: backlog, search, one event with its errors, its payload.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_db::event::EventId;
use symphony_db::event::reader::{self, EventBacklog, EventError, EventSearch};
use symphony_db::{BatchSize, Payload};

use super::{ListQuery, list};
use crate::access::Scope;
use crate::endpoint::{Endpoint, NoParams};
use crate::extract::{PathId, optional_name};
use crate::paging::{self, CursorKind, Page};
use crate::problem::Problem;
use crate::{Console, ConsoleState};

/// The most errors that the API returns for one event.
const MAX_ERRORS: u16 = 50;

/// A search for events. Fields that are left out do not filter.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// The type of its aggregate.
    pub(crate) aggregate_type: Option<String>,
    /// The id of its aggregate.
    pub(crate) aggregate_id: Option<String>,
    /// The type of the event.
    pub(crate) event_type: Option<String>,
    /// true: only events that are not processed; false: only processed ones.
    pub(crate) unprocessed: Option<bool>,
    /// Items per page, 1 to 200; 50 if left out.
    pub(crate) limit: Option<i32>,
    /// The next_cursor of the page before.
    pub(crate) cursor: Option<String>,
}

/// One event and the errors that processors recorded.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventDetails {
    /// The event.
    pub(crate) event: reader::EventState,
    /// The recorded errors, latest first; at most 50.
    pub(crate) errors: Vec<EventError>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<EventQuery, Page<reader::EventState>, _>(
            "/events",
            Scope::Read,
            "Search events, the highest id first.",
            list::<EventQuery>,
        ),
        Endpoint::get::<NoParams, EventBacklog, _>(
            "/event-backlog",
            Scope::Read,
            "The number of events that are not processed.",
            backlog,
        ),
        Endpoint::get::<NoParams, EventDetails, _>(
            "/events/{event_id}",
            Scope::Read,
            "One event and the errors that processors recorded.",
            one,
        ),
        Endpoint::get::<NoParams, serde_json::Value, _>(
            "/events/{event_id}/payload",
            Scope::Audit,
            "The payload that is sent to the broker.",
            payload,
        ),
    ]
}

impl ListQuery for EventQuery {
    type Item = reader::EventState;

    async fn page(self, console: &Console) -> Result<Page<reader::EventState>, Problem> {
        let limit = paging::limit(self.limit)?;
        let limit = u16::try_from(limit).ok().and_then(|limit| BatchSize::try_from(limit).ok());
        let limit = limit.ok_or_else(|| Problem::bad_request("limit must be from 1 to 200"))?;
        let key = paging::decode(CursorKind::Event, self.cursor.as_deref())?;
        let key = key.map(|key| <[u8; 8]>::try_from(key).map_err(|_| paging::invalid_cursor())).transpose()?;
        let search = EventSearch {
            aggregate_type: optional_name("aggregate_type", self.aggregate_type)?,
            aggregate_id: optional_name("aggregate_id", self.aggregate_id)?,
            event_type: optional_name("event_type", self.event_type)?,
            unprocessed: self.unprocessed,
            before: key.map(|key| EventId(i64::from_be_bytes(key))),
        };
        let page = console.database.read(async |client| reader::list(client, &search, limit).await).await?;
        let next_cursor = page.next.map(|id| paging::encode(CursorKind::Event, &id.0.to_be_bytes()));
        Ok(Page { items: page.rows, next_cursor })
    }
}

/// One event with its errors.
pub(crate) async fn event_details(console: &Console, id: EventId) -> Result<EventDetails, Problem> {
    let max_errors = BatchSize::try_from(MAX_ERRORS).unwrap_or(BatchSize::ONE);
    let read = async |client: &_| {
        let Some(event) = reader::event(client, id).await? else { return Ok(None) };
        Ok(Some(EventDetails { event, errors: reader::errors(client, id, max_errors).await? }))
    };
    console.database.read(read).await?.ok_or_else(|| Problem::not_found("event with this id"))
}

/// The payload of one event.
pub(crate) async fn event_payload(console: &Console, id: EventId) -> Result<Payload, Problem> {
    let payload = console.database.read(async |client| reader::payload(client, id).await).await?;
    payload.ok_or_else(|| Problem::not_found("event with this id"))
}

async fn backlog(State(console): State<ConsoleState>) -> Result<Json<EventBacklog>, Problem> {
    Ok(Json(console.database.read(async |client| reader::backlog(client).await).await?))
}

async fn one(
    State(console): State<ConsoleState>,
    PathId(id): PathId<EventId>,
) -> Result<Json<EventDetails>, Problem> {
    Ok(Json(event_details(&console, id).await?))
}

async fn payload(
    State(console): State<ConsoleState>,
    PathId(id): PathId<EventId>,
) -> Result<Json<Payload>, Problem> {
    Ok(Json(event_payload(&console, id).await?))
}
