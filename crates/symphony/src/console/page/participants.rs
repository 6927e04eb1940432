//! The participants, and the stream of each.

use askama::Template;
use axum::extract::State;
use axum::response::Response;
use serde::Deserialize;
use symphony_outbox::payment::reading;

use super::row::Row;
use super::{Frame, Refusal, in_path, shown};
use crate::console::Desk;
use crate::console::api::Query;
use crate::console::given::{Asked, NameInPath, bounded};
use crate::console::session::Visitor;

/// How many a page has.
const EACH: i32 = 100;

#[derive(Template)]
#[template(path = "participants.html")]
struct ListPage {
    frame: Frame,
    after: String,
    rows: Vec<(String, String)>,
    next: Option<String>,
}

#[derive(Template)]
#[template(path = "participant.html")]
struct StreamPage {
    frame: Frame,
    name: String,
    rows: Vec<Row>,
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
    State(desk): State<Desk>,
    visitor: Visitor,
    Asked(After { after }): Asked<After>,
) -> Result<Response, Refusal> {
    bounded("the name", &after)?;
    let found = desk.database.read(async |client| reading::participants(client, &after, EACH).await).await?;
    let last = found.last().filter(|_| i32::try_from(found.len()).is_ok_and(|count| count == EACH));
    let next = last.map(|last| format!("/participants?after={}", in_path(&last.participant_id)));
    let rows = found.into_iter().map(|one| {
        let path = format!("/participants/{}", in_path(&one.participant_id));
        (path, one.participant_id)
    });
    Ok(shown(&ListPage { frame: Frame::new(&desk, &visitor, "/participants"), rows: rows.collect(), after, next }))
}

pub(super) async fn stream(
    State(desk): State<Desk>,
    visitor: Visitor,
    NameInPath(name): NameInPath,
    Asked(Before { cursor }): Asked<Before>,
) -> Result<Response, Refusal> {
    let query = Query { participant_id: Some(name.clone()), cursor, ..Query::default() };
    let found = query.page(&desk).await?;
    let next =
        found.next_cursor.map(|cursor| format!("/participants/{}?cursor={}", in_path(&name), in_path(&cursor)));
    let rows = found.items.into_iter().map(Row::from).collect();
    Ok(shown(&StreamPage { frame: Frame::new(&desk, &visitor, "/participants"), name, rows, next }))
}
