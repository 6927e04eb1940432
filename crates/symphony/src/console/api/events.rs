//! The event lane: what is not processed, events, and what was said about one.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_outbox::event::reading::{self, EventBacklog, EventSearch, Said};
use symphony_outbox::{BatchSize, Payload, event};

use crate::console::access::Scope;
use crate::console::endpoint::{Endpoint, Nothing};
use crate::console::given::{Asked, EventInPath, asked};
use crate::console::paging::{self, Kind, Page};
use crate::console::problem::Problem;
use crate::console::{Console, Desk};

/// How much of what was said about an event is told.
const SAID: u16 = 50;

/// What to look for. What is left out is not asked.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// What kind of thing it happened to.
    pub(crate) aggregate_type: Option<String>,
    /// Which one of that kind.
    pub(crate) aggregate_id: Option<String>,
    /// What happened.
    pub(crate) event_type: Option<String>,
    /// Whether it is not processed yet.
    pub(crate) unprocessed: Option<bool>,
    /// At most so many, 1 to 200; 50 if it is left out.
    pub(crate) limit: Option<i32>,
    /// Where a page before this one ended.
    pub(crate) cursor: Option<String>,
}

/// One event, and what processors said about it.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct EventStory {
    /// The event as it is now.
    pub(crate) event: reading::State,
    /// What was said about it, the latest first; at most 50.
    pub(crate) said: Vec<Said>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<EventQuery, Page<reading::State>, _>(
            "/events",
            Scope::Read,
            "Search events, the highest number first.",
            list,
        ),
        Endpoint::get::<Nothing, EventBacklog, _>(
            "/event-backlog",
            Scope::Read,
            "How many events are not processed.",
            backlog,
        ),
        Endpoint::get::<Nothing, EventStory, _>(
            "/events/{event_id}",
            Scope::Read,
            "One event, and what processors said about it.",
            one,
        ),
        Endpoint::get::<Nothing, serde_json::Value, _>(
            "/events/{event_id}/payload",
            Scope::Audit,
            "What the broker is given.",
            payload,
        ),
    ]
}

impl EventQuery {
    /// The page that is asked for.
    pub(crate) async fn page(self, desk: &Console) -> Result<Page<reading::State>, Problem> {
        let limit = paging::limit(self.limit)?;
        let limit = u16::try_from(limit).ok().and_then(|limit| BatchSize::try_from(limit).ok());
        let limit = limit.ok_or_else(|| Problem::bad("limit must be from 1 to 200"))?;
        let before = paging::place(Kind::Event, self.cursor.as_deref())?.map(|place| {
            let place = <[u8; 8]>::try_from(place);
            place.map_err(|_| Problem::bad("the cursor is not one that this list gave out"))
        });
        let search = EventSearch {
            aggregate_type: asked("aggregate_type", self.aggregate_type)?,
            aggregate_id: asked("aggregate_id", self.aggregate_id)?,
            event_type: asked("event_type", self.event_type)?,
            unprocessed: self.unprocessed,
            before: before.transpose()?.map(|place| event::EventId(i64::from_be_bytes(place))),
        };
        let page = desk.database.read(async |client| reading::list(client, &search, limit).await).await?;
        let next_cursor = page.next_before.map(|id| paging::cursor(Kind::Event, &id.0.to_be_bytes()));
        Ok(Page { items: page.events, next_cursor })
    }
}

/// The story of one event.
pub(crate) async fn event_story(desk: &Console, id: event::EventId) -> Result<EventStory, Problem> {
    let most = BatchSize::try_from(SAID).unwrap_or(BatchSize::ONE);
    let read = async |client: &_| {
        let Some(event) = reading::event(client, id).await? else { return Ok(None) };
        Ok(Some(EventStory { event, said: reading::errors(client, id, most).await? }))
    };
    desk.database.read(read).await?.ok_or_else(|| Problem::missing("event of that number"))
}

/// The payload of one event.
pub(crate) async fn event_payload(desk: &Console, id: event::EventId) -> Result<Payload, Problem> {
    let payload = desk.database.read(async |client| reading::payload(client, id).await).await?;
    payload.ok_or_else(|| Problem::missing("event of that number"))
}

async fn list(
    State(desk): State<Desk>,
    Asked(query): Asked<EventQuery>,
) -> Result<Json<Page<reading::State>>, Problem> {
    Ok(Json(query.page(&desk).await?))
}

async fn backlog(State(desk): State<Desk>) -> Result<Json<EventBacklog>, Problem> {
    Ok(Json(desk.database.read(async |client| reading::backlog(client).await).await?))
}

async fn one(State(desk): State<Desk>, EventInPath(id): EventInPath) -> Result<Json<EventStory>, Problem> {
    Ok(Json(event_story(&desk, id).await?))
}

async fn payload(State(desk): State<Desk>, EventInPath(id): EventInPath) -> Result<Json<Payload>, Problem> {
    Ok(Json(event_payload(&desk, id).await?))
}
