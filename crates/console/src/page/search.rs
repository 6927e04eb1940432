//! The payments page: search by id, instruction, key, participant, rail, state, error and time.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use symphony_db::OutboxId;
use symphony_db::payment::{OutboxState, reader};

use super::outbox_row::OutboxRow;
use super::{Layout, PageError, non_empty, parse_time, render, with_query};
use crate::api::{ListQuery as _, OutboxQuery};
use crate::extract::{QueryParams, check_name};
use crate::problem::Problem;
use crate::session::Visitor;
use crate::{Console, ConsoleState};

#[derive(Template)]
#[template(path = "search.html")]
struct Page {
    layout: Layout,
    q: String,
    participant: String,
    rail: String,
    states: Vec<(&'static str, bool)>,
    error: String,
    from: String,
    to: String,
    rows: Vec<OutboxRow>,
    next: Option<String>,
}

/// The search form. Empty fields do not filter.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Form {
    /// An outbox id, an instruction id or an idempotency key.
    q: String,
    participant_id: String,
    rail_type: String,
    state: String,
    error_code: String,
    from: String,
    to: String,
    cursor: String,
}

pub(super) async fn page(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    QueryParams(form): QueryParams<Form>,
) -> Result<Response, PageError> {
    let q = form.q.trim().to_owned();
    check_name("the search text", &q)?;
    if let Ok(id) = q.parse::<OutboxId>()
        && console.database.read(async |client| reader::outbox(client, id).await).await?.is_some()
    {
        return Ok(Redirect::to(&format!("/outboxes/{id}")).into_response());
    }
    let found = form.search(&console, &q).await?;
    let next = found.next_cursor.map(|cursor| form.next_path(&cursor));
    let state = form.state.clone();
    Ok(render(&Page {
        layout: Layout::new(&console, &visitor, "/search"),
        q,
        participant: form.participant_id,
        rail: form.rail_type,
        states: OutboxState::ALL.iter().map(|known| (known.as_str(), known.as_str() == state)).collect(),
        error: form.error_code,
        from: form.from,
        to: form.to,
        rows: found.items.into_iter().map(OutboxRow::from).collect(),
        next,
    }))
}

impl Form {
    /// The matching payments: by instruction, or by idempotency key if no instruction has that id.
    async fn search(&self, console: &Console, q: &str) -> Result<crate::paging::Page<reader::Outbox>, Problem> {
        let state = match non_empty(&self.state) {
            None => None,
            Some(state) => Some(state.parse().map_err(|error| Problem::bad_request(format!("{error}")))?),
        };
        let query = OutboxQuery {
            participant_id: non_empty(&self.participant_id),
            rail_type: non_empty(&self.rail_type),
            state,
            error_code: non_empty(&self.error_code),
            from: parse_time("from", &self.from)?,
            to: parse_time("to", &self.to)?,
            cursor: non_empty(&self.cursor),
            ..OutboxQuery::default()
        };
        if q.is_empty() {
            return query.page(console).await;
        }
        let by_instruction = OutboxQuery { instruction_id: non_empty(q), ..query.clone() }.page(console).await?;
        if !by_instruction.items.is_empty() || by_instruction.next_cursor.is_some() {
            return Ok(by_instruction);
        }
        OutboxQuery { idempotency_key: non_empty(q), ..query }.page(console).await
    }

    /// The path of the next page.
    fn next_path(&self, cursor: &str) -> String {
        with_query(
            "/search",
            &[
                ("cursor", cursor),
                ("q", &self.q),
                ("participant_id", &self.participant_id),
                ("rail_type", &self.rail_type),
                ("state", &self.state),
                ("error_code", &self.error_code),
                ("from", &self.from),
                ("to", &self.to),
            ],
        )
    }
}
