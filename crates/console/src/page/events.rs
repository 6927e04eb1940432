//! The pages of the event lane: backlog and search, one event, its payload.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use symphony_db::event::{EventId, reader};

use super::time::{Moment, number, seconds};
use super::{Layout, PageError, PayloadPage, non_empty, render, texts, with_query};
use crate::ConsoleState;
use crate::api::{self, EventQuery, ListQuery as _};
use crate::extract::{PathId, QueryParams};
use crate::session::Visitor;

#[derive(Template)]
#[template(path = "events.html")]
struct ListPage {
    layout: Layout,
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
    layout: Layout,
    row: Row,
    headline: String,
    claimed_by: Option<String>,
    /// Time, processor and message of each error.
    errors: Vec<(Moment, String, String)>,
}

/// The search form. Empty fields do not filter.
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
    fn of(event: &reader::EventState) -> Self {
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

/// The state of an event and its tone.
fn state(event: &reader::EventState) -> (&'static str, &'static str) {
    let later = event.process_after.is_some_and(|at| at > jiff::Timestamp::now());
    match (event.processed_at, event.claimed_at) {
        (Some(_), _) => ("PROCESSED", "ok"),
        (None, Some(_)) => ("CLAIMED", "wait"),
        (None, None) if later => ("SCHEDULED", "retry"),
        (None, None) => ("DUE", "wait"),
    }
}

pub(super) async fn list(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    QueryParams(form): QueryParams<Form>,
) -> Result<Response, PageError> {
    let backlog = console.database.read(async |client| reader::backlog(client).await).await?;
    let unprocessed = !form.unprocessed.is_empty();
    let query = EventQuery {
        aggregate_type: non_empty(&form.aggregate_type),
        aggregate_id: non_empty(&form.aggregate_id),
        event_type: non_empty(&form.event_type),
        unprocessed: unprocessed.then_some(true),
        limit: None,
        cursor: non_empty(&form.cursor),
    };
    let found = query.page(&console).await?;
    let next = found.next_cursor.map(|cursor| {
        with_query(
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
    Ok(render(&ListPage {
        layout: Layout::new(&console, &visitor, "/events"),
        due: number(backlog.due, backlog.more_due),
        claimed: number(backlog.claimed, backlog.more_claimed),
        stuck: number(backlog.stuck, backlog.more_stuck),
        scheduled: number(backlog.scheduled, backlog.more_scheduled),
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
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<EventId>,
) -> Result<Response, PageError> {
    let details = api::event_details(&console, id).await?;
    let errors = details.errors.iter().map(|error| {
        let processor = if error.succeeded {
            format!("{} (published all the same)", error.processor_id)
        } else {
            error.processor_id.clone()
        };
        (Moment::of(error.created_at), processor, error.error.clone())
    });
    Ok(render(&EventPage {
        layout: Layout::new(&console, &visitor, ""),
        row: Row::of(&details.event),
        headline: texts::event_summary(&details.event),
        claimed_by: details.event.claimed_by.clone(),
        errors: errors.collect(),
    }))
}

pub(super) async fn payload(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<EventId>,
) -> Result<Response, PageError> {
    let payload = api::event_payload(&console, id).await?;
    Ok(render(&PayloadPage {
        layout: Layout::new(&console, &visitor, ""),
        title: "Payload",
        heading: "Payload for the broker",
        back_path: format!("/events/{}", id.0),
        back_label: "Back to the event",
        notice: None,
        payload: payload.as_json().to_owned(),
        request: None,
    }))
}
