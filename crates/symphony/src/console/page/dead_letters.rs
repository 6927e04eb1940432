//! What waits for a person: unknown outcomes first, with the two steps that they need.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use symphony_outbox::payment::reading::{self, DeadLetterFilter};

use super::form::Sent;
use super::row::Row;
use super::time::number;
use super::{Frame, Refusal, in_path, shown};
use crate::console::Desk;
use crate::console::api::Redrive;
use crate::console::given::{Asked, asked};
use crate::console::paging::{self, Kind};
use crate::console::session::Visitor;

/// How many of each kind a page has.
const EACH: i32 = 50;

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct Page {
    frame: Frame,
    unknown_count: String,
    unknown: Vec<Row>,
    unknown_next: Option<String>,
    known_count: String,
    known: Vec<Row>,
    known_next: Option<String>,
    counted: Option<Counted>,
}

/// What a dry run found.
struct Counted {
    matching: String,
    more: bool,
    rail: String,
    error: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Query {
    unknown_cursor: String,
    known_cursor: String,
    rail_type: String,
    error_code: String,
    /// Whether to count what fits, before it is redriven.
    count: String,
}

pub(super) async fn page(
    State(desk): State<Desk>,
    visitor: Visitor,
    Asked(query): Asked<Query>,
) -> Result<Response, Refusal> {
    let (rail, error) = (asked("rail", Some(query.rail_type))?, asked("error code", Some(query.error_code))?);
    let before = [
        paging::id(Kind::Outbox, Some(&query.unknown_cursor))?.map(Into::into),
        paging::id(Kind::Outbox, Some(&query.known_cursor))?.map(Into::into),
    ];
    let count = !query.count.is_empty();
    let read = async |client: &_| {
        let of = |unknown| DeadLetterFilter { outcome_unknown: Some(unknown), ..DeadLetterFilter::default() };
        let unknown = reading::page_of_dead_letters(client, &of(true), before[0], EACH).await?;
        let known = reading::page_of_dead_letters(client, &of(false), before[1], EACH).await?;
        let all = reading::count_dead_letters(client, None, None).await?;
        let fit = if count {
            Some(reading::count_dead_letters(client, rail.as_deref(), error.as_deref()).await?)
        } else {
            None
        };
        Ok((unknown, known, all, fit))
    };
    let (unknown, known, all, fit) = desk.database.read(read).await?;
    let next = |page: &reading::Page, name: &str| {
        let cursor = paging::cursor(Kind::Outbox, page.next_before?.0.as_bytes());
        Some(format!("/dead-letters?{name}={}", in_path(&cursor)))
    };
    Ok(shown(&Page {
        frame: Frame::new(&desk, &visitor, "/dead-letters"),
        unknown_count: number(all.unknown, all.more),
        unknown_next: next(&unknown, "unknown_cursor"),
        unknown: unknown.outboxes.into_iter().map(Row::from).collect(),
        known_count: number(all.known, all.more),
        known_next: next(&known, "known_cursor"),
        known: known.outboxes.into_iter().map(Row::from).collect(),
        counted: fit.map(|fit| Counted {
            matching: fit.known.to_string(),
            more: fit.more,
            rail: rail.unwrap_or_default(),
            error: error.unwrap_or_default(),
        }),
    }))
}

pub(super) async fn redrive(
    State(desk): State<Desk>,
    visitor: Visitor,
    Sent(redrive): Sent<Form>,
) -> Result<Response, Refusal> {
    let redrive = Redrive {
        rail_type: Some(redrive.rail_type),
        error_code: Some(redrive.error_code),
        expected: Some(redrive.expected),
        actor: redrive.actor,
        reason: redrive.reason,
    };
    redrive.carry_out(&desk, &visitor.caller).await?;
    Ok(Redirect::to("/dead-letters").into_response())
}

/// What the form of a redrive of many brings.
#[derive(Deserialize)]
pub(super) struct Form {
    #[serde(default)]
    rail_type: String,
    #[serde(default)]
    error_code: String,
    expected: i64,
    #[serde(default)]
    actor: String,
    reason: String,
}
