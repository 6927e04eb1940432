//! The metadata lane: what is not published, entries, and one as a timeline.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use symphony_outbox::metadata::Status;
use symphony_outbox::metadata::reading::{self, MetadataEntry};

use super::time::{Moment, clock, number, seconds};
use super::{Frame, Refusal, link, moment, shown, some};
use crate::console::Desk;
use crate::console::api::{MetadataQuery, MetadataStory, metadata_payload, metadata_story};
use crate::console::given::{Asked, EntryInPath};
use crate::console::problem::Problem;
use crate::console::session::Visitor;

#[derive(Template)]
#[template(path = "metadata.html")]
struct ListPage {
    frame: Frame,
    due: String,
    processing: String,
    stuck: String,
    scheduled: String,
    dead: String,
    dead_open: bool,
    oldest: String,
    oldest_pending: String,
    entity_type: String,
    entity_id: String,
    statuses: Vec<(&'static str, bool)>,
    error: String,
    from: String,
    to: String,
    rows: Vec<Row>,
    next: Option<String>,
}

struct Row {
    id: String,
    entity: String,
    entity_path: String,
    status: &'static str,
    tone: &'static str,
    created: Moment,
    failures: String,
    error: String,
}

#[derive(Template)]
#[template(path = "metadata_entry.html")]
struct EntryPage {
    frame: Frame,
    row: Row,
    headline: String,
    next_step: String,
    steps: Vec<(&'static str, Moment, String)>,
    /// The other entries of the entity.
    rows: Vec<Row>,
}

#[derive(Template)]
#[template(path = "metadata_payload.html")]
struct PayloadPage {
    frame: Frame,
    id: String,
    payload: String,
}

/// What the form asks; empty fields ask nothing.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Form {
    entity_type: String,
    entity_id: String,
    status: String,
    error: String,
    from: String,
    to: String,
    cursor: String,
}

impl From<&MetadataEntry> for Row {
    fn from(entry: &MetadataEntry) -> Self {
        Self {
            id: entry.id.to_string(),
            entity: format!("{} {}", entry.entity_type, entry.entity_id),
            entity_path: link(
                "/metadata",
                &[("entity_type", &entry.entity_type), ("entity_id", &entry.entity_id)],
            ),
            status: entry.status.as_str(),
            tone: match entry.status {
                Status::Published => "ok",
                Status::Failed => "again",
                Status::Dlq => "bad",
                Status::Pending | Status::Processing => "wait",
            },
            created: Moment::of(entry.created_at),
            failures: format!("{} of {}", entry.retry_count, entry.max_retries),
            error: entry.last_error.clone().unwrap_or_default(),
        }
    }
}

pub(super) async fn list(
    State(desk): State<Desk>,
    visitor: Visitor,
    Asked(form): Asked<Form>,
) -> Result<Response, Refusal> {
    let backlog = desk.database.read(async |client| reading::backlog(client).await).await?;
    let status = some(&form.status).map(|status| status.parse::<Status>());
    let query = MetadataQuery {
        entity_type: some(&form.entity_type),
        entity_id: some(&form.entity_id),
        status: status.transpose().map_err(|error| Problem::bad(format!("{error}")))?,
        error: some(&form.error),
        from: moment("from", &form.from)?,
        to: moment("to", &form.to)?,
        limit: None,
        cursor: some(&form.cursor),
    };
    let found = query.page(&desk).await?;
    let next = found.next_cursor.map(|cursor| {
        link(
            "/metadata",
            &[
                ("cursor", &cursor),
                ("entity_type", &form.entity_type),
                ("entity_id", &form.entity_id),
                ("status", &form.status),
                ("error", &form.error),
                ("from", &form.from),
                ("to", &form.to),
            ],
        )
    });
    Ok(shown(&ListPage {
        frame: Frame::new(&desk, &visitor, "/metadata"),
        due: number(backlog.due, backlog.more),
        processing: number(backlog.processing, backlog.more),
        stuck: number(backlog.stuck, backlog.more),
        scheduled: number(backlog.scheduled, backlog.more),
        dead: number(backlog.dlq, backlog.more),
        dead_open: backlog.dlq > 0,
        oldest: seconds(backlog.oldest_due_age_seconds),
        oldest_pending: seconds(backlog.oldest_pending_age_seconds),
        statuses: Status::ALL.iter().map(|word| (word.as_str(), word.as_str() == form.status)).collect(),
        entity_type: form.entity_type,
        entity_id: form.entity_id,
        error: form.error,
        from: form.from,
        to: form.to,
        rows: found.items.iter().map(Row::from).collect(),
        next,
    }))
}

pub(super) async fn one(
    State(desk): State<Desk>,
    visitor: Visitor,
    EntryInPath(id): EntryInPath,
) -> Result<Response, Refusal> {
    let story = metadata_story(&desk, id).await?;
    let (headline, next_step) = verdict(&story);
    Ok(shown(&EntryPage {
        frame: Frame::new(&desk, &visitor, ""),
        row: Row::from(&story.entry),
        headline,
        next_step,
        steps: steps(&story.entry),
        rows: story.versions.iter().filter(|other| other.id != story.entry.id).map(Row::from).collect(),
    }))
}

pub(super) async fn payload(
    State(desk): State<Desk>,
    visitor: Visitor,
    EntryInPath(id): EntryInPath,
) -> Result<Response, Refusal> {
    let payload = metadata_payload(&desk, id).await?;
    let frame = Frame::new(&desk, &visitor, "");
    Ok(shown(&PayloadPage { frame, id: id.to_string(), payload: payload.as_json().to_owned() }))
}

/// What is so, and what to do next.
fn verdict(story: &MetadataStory) -> (String, String) {
    let entry = &story.entry;
    let says = |headline: &str, next: &str| (headline.to_owned(), next.to_owned());
    let later = story
        .versions
        .iter()
        .any(|other| other.created_at > entry.created_at && other.status == Status::Published);
    match entry.status {
        Status::Published => says("The second store has it.", "Nothing is left to do."),
        Status::Pending => says(
            "It waits to be claimed.",
            "Nothing to do. Where it waits for long: does a relayer run that has a route for it?",
        ),
        Status::Processing => (
            format!("{} is writing it now.", entry.claimed_by.as_deref().unwrap_or("A relayer")),
            "Nothing to do: after 5 minutes without a word it is tried again.".to_owned(),
        ),
        Status::Failed => {
            let when = entry.next_retry_at.map_or_else(
                || "It failed, and no retries are left: the next repair gives it up.".to_owned(),
                |at| format!("It failed {} times and is tried again at {}.", entry.retry_count, clock(at)),
            );
            (when, "Nothing to do here: is the second store well?".to_owned())
        }
        Status::Dlq if later => says(
            "It was given up, and a later version of the entity has arrived since.",
            "Nothing is left to do: the second store has what is newer.",
        ),
        Status::Dlq => says(
            "It was given up: the second store does not have it.",
            "Nothing leaves the DLQ. Remove the cause, then let its producer write the entity again: that makes a new entry.",
        ),
    }
}

/// What is known of its way, in the order of time. Of several failures only the last is kept.
fn steps(entry: &MetadataEntry) -> Vec<(&'static str, Moment, String)> {
    let mut steps = vec![("wait", entry.created_at, "Created".to_owned())];
    if let Some(at) = entry.processing_started_at {
        let by = entry.claimed_by.as_deref().unwrap_or("somebody");
        steps.push(("wait", at, format!("Claimed last by {by}, after {} failures were counted", claims(entry))));
    }
    let error = entry.last_error.as_deref().unwrap_or_default();
    match entry.status {
        Status::Failed => steps.push(("again", entry.updated_at, format!("Failed: {error}"))),
        Status::Dlq => steps.push(("bad", entry.updated_at, format!("Given up: {error}"))),
        Status::Published => {
            steps.push(("ok", entry.processed_at.unwrap_or(entry.updated_at), "Published".to_owned()));
        }
        Status::Pending | Status::Processing => {}
    }
    steps.into_iter().map(|(tone, at, words)| (tone, Moment::of(at), words)).collect()
}

/// How many failures had been counted when it was claimed last.
fn claims(entry: &MetadataEntry) -> i32 {
    match entry.status {
        Status::Failed | Status::Dlq => (entry.retry_count - 1).max(0),
        Status::Pending | Status::Processing | Status::Published => entry.retry_count,
    }
}
