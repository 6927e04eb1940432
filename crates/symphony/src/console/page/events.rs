//! The event lane: what is not processed, events, and what was said about one.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use symphony_outbox::event::reading;

use super::time::{Moment, number, seconds};
use super::{Frame, Refusal, link, shown, some};
use crate::console::Desk;
use crate::console::api::{EventQuery, event_payload, event_story};
use crate::console::given::{Asked, EventInPath};
use crate::console::session::Visitor;

#[derive(Template)]
#[template(path = "events.html")]
struct ListPage {
    frame: Frame,
    due: String,
    claimed: String,
    stuck: String,
    scheduled: String,
    oldest: String,
    oldest_pending: String,
    aggregate_type: String,
    aggregate_id: String,
    event_type: String,
    unprocessed: bool,
    rows: Vec<Row>,
    next: Option<String>,
}

struct Row {
    id: i64,
    state: &'static str,
    tone: &'static str,
    aggregate: String,
    event_type: String,
    created: Moment,
    retries: i32,
}

#[derive(Template)]
#[template(path = "event.html")]
struct EventPage {
    frame: Frame,
    row: Row,
    headline: String,
    claimed_by: Option<String>,
    said: Vec<(Moment, String, String)>,
}

#[derive(Template)]
#[template(path = "event_payload.html")]
struct PayloadPage {
    frame: Frame,
    id: i64,
    payload: String,
}

/// What the form asks; empty fields ask nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Form {
    aggregate_type: String,
    aggregate_id: String,
    event_type: String,
    unprocessed: String,
    cursor: String,
}

impl Row {
    fn of(event: &reading::State) -> Self {
        let (state, tone) = state(event);
        Self {
            id: event.id.0,
            state,
            tone,
            aggregate: format!("{} {}", event.aggregate_type, event.aggregate_id),
            event_type: event.event_type.clone(),
            created: Moment::of(event.created_at),
            retries: event.retry_count,
        }
    }
}

/// What an event is doing, in a word.
fn state(event: &reading::State) -> (&'static str, &'static str) {
    let later = event.process_after.is_some_and(|at| at > jiff::Timestamp::now());
    match (event.processed_at, event.claimed_at) {
        (Some(_), _) => ("PROCESSED", "ok"),
        (None, Some(_)) => ("CLAIMED", "wait"),
        (None, None) if later => ("SCHEDULED", "again"),
        (None, None) => ("DUE", "wait"),
    }
}

pub(super) async fn list(
    State(desk): State<Desk>,
    visitor: Visitor,
    Asked(form): Asked<Form>,
) -> Result<Response, Refusal> {
    let backlog = desk.database.read(async |client| reading::backlog(client).await).await?;
    let unprocessed = !form.unprocessed.is_empty();
    let query = EventQuery {
        aggregate_type: some(&form.aggregate_type),
        aggregate_id: some(&form.aggregate_id),
        event_type: some(&form.event_type),
        unprocessed: unprocessed.then_some(true),
        limit: None,
        cursor: some(&form.cursor),
    };
    let found = query.page(&desk).await?;
    let next = found.next_cursor.map(|cursor| {
        link(
            "/events",
            &[
                ("cursor", &cursor),
                ("aggregate_type", &form.aggregate_type),
                ("aggregate_id", &form.aggregate_id),
                ("event_type", &form.event_type),
                ("unprocessed", &form.unprocessed),
            ],
        )
    });
    Ok(shown(&ListPage {
        frame: Frame::new(&desk, &visitor, "/events"),
        due: number(backlog.due, backlog.more),
        claimed: number(backlog.claimed, backlog.more),
        stuck: number(backlog.stuck, backlog.more),
        scheduled: number(backlog.scheduled, backlog.more),
        oldest: seconds(backlog.oldest_due_age_seconds),
        oldest_pending: seconds(backlog.oldest_pending_age_seconds),
        aggregate_type: form.aggregate_type,
        aggregate_id: form.aggregate_id,
        event_type: form.event_type,
        unprocessed,
        rows: found.items.iter().map(Row::of).collect(),
        next,
    }))
}

pub(super) async fn one(
    State(desk): State<Desk>,
    visitor: Visitor,
    EventInPath(id): EventInPath,
) -> Result<Response, Refusal> {
    let story = event_story(&desk, id).await?;
    let event = &story.event;
    let headline = match (event.processed_at, event.process_after) {
        (Some(at), _) => format!("Published at {}. Nothing is left to do.", super::time::clock(at)),
        (None, _) if event.claimed_at.is_some() => {
            "A relayer is publishing it. Where that takes more than 5 minutes, another takes it over.".to_owned()
        }
        (None, Some(at)) => format!(
            "It failed {} times and is tried again at {}, without end. Nothing to do here: is the broker well?",
            event.retry_count,
            super::time::clock(at)
        ),
        (None, None) => {
            "It waits to be claimed. Where it waits for long: does a relayer run that has a route for it?"
                .to_owned()
        }
    };
    let said = story.said.iter().map(|said| {
        let who = if said.succeeded {
            format!("{} (published all the same)", said.processor_id)
        } else {
            said.processor_id.clone()
        };
        (Moment::of(said.created_at), who, said.error.clone())
    });
    Ok(shown(&EventPage {
        frame: Frame::new(&desk, &visitor, ""),
        row: Row::of(event),
        headline,
        claimed_by: event.claimed_by.clone(),
        said: said.collect(),
    }))
}

pub(super) async fn payload(
    State(desk): State<Desk>,
    visitor: Visitor,
    EventInPath(id): EventInPath,
) -> Result<Response, Refusal> {
    let payload = event_payload(&desk, id).await?;
    let frame = Frame::new(&desk, &visitor, "");
    Ok(shown(&PayloadPage { frame, id: id.0, payload: payload.as_json().to_owned() }))
}
