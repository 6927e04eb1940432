//! The dead-letter queue page: unknown outcomes first, then known failures, and the form to redrive many.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use symphony_db::payment::reader::{self, DeadLetterFilter, Outbox};
use symphony_db::{OutboxId, Page as Rows};

use super::form::CsrfForm;
use super::outbox_row::OutboxRow;
use super::time::number;
use super::{Layout, PageError, percent_encode, render};
use crate::ConsoleState;
use crate::api::BulkRedrive;
use crate::extract::{QueryParams, optional_name};
use crate::paging::{self, CursorKind};
use crate::session::Visitor;

/// Dead letters of each kind per page.
const PAGE_SIZE: i32 = 50;

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct Page {
    layout: Layout,
    unknown_count: String,
    unknown: Vec<OutboxRow>,
    unknown_next: Option<String>,
    known_count: String,
    known: Vec<OutboxRow>,
    known_next: Option<String>,
    counted: Option<Counted>,
}

/// The result of a dry run.
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
    /// Not empty: count the matching dead letters before the redrive.
    count: String,
}

pub(super) async fn page(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    QueryParams(query): QueryParams<Query>,
) -> Result<Response, PageError> {
    let (rail, error) =
        (optional_name("rail", Some(query.rail_type))?, optional_name("error code", Some(query.error_code))?);
    let before = [
        paging::decode_uuid(CursorKind::Outbox, Some(&query.unknown_cursor))?.map(Into::into),
        paging::decode_uuid(CursorKind::Outbox, Some(&query.known_cursor))?.map(Into::into),
    ];
    let count = !query.count.is_empty();
    let read = async |client: &_| {
        let filter = |unknown| DeadLetterFilter { outcome_unknown: Some(unknown), ..DeadLetterFilter::default() };
        let unknown = reader::list_dead_letters(client, &filter(true), before[0], PAGE_SIZE).await?;
        let known = reader::list_dead_letters(client, &filter(false), before[1], PAGE_SIZE).await?;
        let all = reader::count_dead_letters(client, &DeadLetterFilter::default()).await?;
        let matching = if count {
            let filter = DeadLetterFilter {
                rail_type: rail.clone(),
                error_code: error.clone(),
                ..DeadLetterFilter::default()
            };
            Some(reader::count_dead_letters(client, &filter).await?)
        } else {
            None
        };
        Ok((unknown, known, all, matching))
    };
    let (unknown, known, all, matching) = console.database.read(read).await?;
    let next = |page: &Rows<Outbox, OutboxId>, name: &str| {
        let cursor = paging::encode(CursorKind::Outbox, page.next?.0.as_bytes());
        Some(format!("/dead-letters?{name}={}", percent_encode(&cursor)))
    };
    Ok(render(&Page {
        layout: Layout::new(&console, &visitor, "/dead-letters"),
        unknown_count: number(all.unknown, all.more),
        unknown_next: next(&unknown, "unknown_cursor"),
        unknown: unknown.rows.into_iter().map(OutboxRow::from).collect(),
        known_count: number(all.known, all.more),
        known_next: next(&known, "known_cursor"),
        known: known.rows.into_iter().map(OutboxRow::from).collect(),
        counted: matching.map(|count| Counted {
            matching: count.known.to_string(),
            more: count.more,
            rail: rail.unwrap_or_default(),
            error: error.unwrap_or_default(),
        }),
    }))
}

pub(super) async fn redrive(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    CsrfForm(redrive): CsrfForm<Form>,
) -> Result<Response, PageError> {
    let redrive = BulkRedrive {
        rail_type: Some(redrive.rail_type),
        error_code: Some(redrive.error_code),
        expected: Some(redrive.expected),
        actor: redrive.actor,
        reason: redrive.reason,
    };
    redrive.run(&console, &visitor.caller).await?;
    Ok(Redirect::to("/dead-letters").into_response())
}

/// The fields of the bulk redrive form.
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
