//! The pages of the metadata lane: backlog and search, one entry with its versions, its payload.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use symphony_db::metadata::reader::{self, MetadataEntry};
use symphony_db::metadata::{EntryId, Status};

use super::texts::{self, Summary};
use super::time::{Moment, number, seconds};
use super::{Layout, PageError, PayloadPage, non_empty, parse_time, render, with_query};
use crate::ConsoleState;
use crate::api::{self, ListQuery as _, MetadataQuery};
use crate::extract::{PathId, QueryParams};
use crate::problem::Problem;
use crate::session::Visitor;

#[derive(Template)]
#[template(path = "metadata.html")]
struct ListPage {
    layout: Layout,
    due: String,
    processing: String,
    stuck: String,
    scheduled: String,
    dlq: String,
    dlq_is_open: bool,
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
    layout: Layout,
    row: Row,
    headline: String,
    next_step: String,
    steps: Vec<(&'static str, Moment, String)>,
    /// The other entries of the entity.
    rows: Vec<Row>,
}

/// The search form. Empty fields do not filter.
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
            entity_path: with_query(
                "/metadata",
                &[("entity_type", &entry.entity_type), ("entity_id", &entry.entity_id)],
            ),
            status: entry.status.as_str(),
            tone: match entry.status {
                Status::Published => "ok",
                Status::Failed => "retry",
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
    State(console): State<ConsoleState>,
    visitor: Visitor,
    QueryParams(form): QueryParams<Form>,
) -> Result<Response, PageError> {
    let backlog = console.database.read(async |client| reader::backlog(client).await).await?;
    let status = non_empty(&form.status).map(|status| status.parse::<Status>());
    let query = MetadataQuery {
        entity_type: non_empty(&form.entity_type),
        entity_id: non_empty(&form.entity_id),
        status: status.transpose().map_err(|error| Problem::bad_request(format!("{error}")))?,
        error: non_empty(&form.error),
        from: parse_time("from", &form.from)?,
        to: parse_time("to", &form.to)?,
        limit: None,
        cursor: non_empty(&form.cursor),
    };
    let found = query.page(&console).await?;
    let next = found.next_cursor.map(|cursor| {
        with_query(
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
    Ok(render(&ListPage {
        layout: Layout::new(&console, &visitor, "/metadata"),
        due: number(backlog.due, backlog.more_due),
        processing: number(backlog.processing, backlog.more_processing),
        stuck: number(backlog.stuck, backlog.more_stuck),
        scheduled: number(backlog.scheduled, backlog.more_scheduled),
        dlq: number(backlog.dlq, backlog.more_dlq),
        dlq_is_open: backlog.dlq > 0,
        oldest: seconds(backlog.oldest_due_age_seconds),
        oldest_pending: seconds(backlog.oldest_pending_age_seconds),
        statuses: Status::ALL.iter().map(|status| (status.as_str(), status.as_str() == form.status)).collect(),
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
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<EntryId>,
) -> Result<Response, PageError> {
    let details = api::metadata_details(&console, id).await?;
    let row = Row::from(&details.entry);
    let Summary { headline, next_step, .. } = texts::metadata_summary(&details, row.tone);
    let steps = texts::metadata_steps(&details.entry);
    Ok(render(&EntryPage {
        layout: Layout::new(&console, &visitor, ""),
        row,
        headline,
        next_step,
        steps: steps.into_iter().map(|(tone, at, title)| (tone, Moment::of(at), title)).collect(),
        rows: details.versions.iter().filter(|other| other.id != details.entry.id).map(Row::from).collect(),
    }))
}

pub(super) async fn payload(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<EntryId>,
) -> Result<Response, PageError> {
    let payload = api::metadata_payload(&console, id).await?;
    Ok(render(&PayloadPage {
        layout: Layout::new(&console, &visitor, ""),
        title: "Metadata",
        heading: "Metadata for the second store",
        back_path: format!("/metadata/{id}"),
        back_label: "Back to the entry",
        notice: None,
        payload: payload.as_json().to_owned(),
        request: None,
    }))
}
