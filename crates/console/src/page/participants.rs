//! The participants page, and the payments of one participant.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use symphony_db::payment::reader;

use super::outbox_row::OutboxRow;
use super::{Layout, PageError, percent_encode, render};
use crate::ConsoleState;
use crate::api::{ListQuery as _, OutboxQuery};
use crate::extract::{PathName, QueryParams, check_name};
use crate::session::Visitor;

/// Participants per page.
const PAGE_SIZE: i32 = 100;

#[derive(Template)]
#[template(path = "participants.html")]
struct ListPage {
    layout: Layout,
    after: String,
    rows: Vec<(String, String)>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "participant.html")]
struct ParticipantPage {
    layout: Layout,
    name: String,
    rows: Vec<OutboxRow>,
    next: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct After {
    after: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Before {
    cursor: Option<String>,
}

pub(super) async fn list(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    QueryParams(After { after }): QueryParams<After>,
) -> Result<Response, PageError> {
    check_name("the name", &after)?;
    let found =
        console.database.read(async |client| reader::participants(client, &after, PAGE_SIZE).await).await?;
    let last = found.last().filter(|_| i32::try_from(found.len()).is_ok_and(|count| count == PAGE_SIZE));
    let next = last.map(|last| format!("/participants?after={}", percent_encode(&last.participant_id)));
    let rows = found.into_iter().map(|one| {
        let path = format!("/participants/{}", percent_encode(&one.participant_id));
        (path, one.participant_id)
    });
    Ok(render(&ListPage {
        layout: Layout::new(&console, &visitor, "/participants"),
        rows: rows.collect(),
        after,
        next,
    }))
}

pub(super) async fn one(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathName(name): PathName,
    QueryParams(Before { cursor }): QueryParams<Before>,
) -> Result<Response, PageError> {
    let query = OutboxQuery { participant_id: Some(name.clone()), cursor, ..OutboxQuery::default() };
    let found = query.page(&console).await?;
    let next = found
        .next_cursor
        .map(|cursor| format!("/participants/{}?cursor={}", percent_encode(&name), percent_encode(&cursor)));
    let rows = found.items.into_iter().map(OutboxRow::from).collect();
    Ok(render(&ParticipantPage { layout: Layout::new(&console, &visitor, "/participants"), name, rows, next }))
}
