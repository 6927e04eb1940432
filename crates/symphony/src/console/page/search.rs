//! Where one looks for a payment.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;
use symphony_outbox::OutboxId;
use symphony_outbox::payment::{OutboxState, reading};

use super::row::Row;
use super::{Frame, Refusal, link, moment, shown, some};
use crate::console::api::Query;
use crate::console::given::{Asked, bounded};
use crate::console::problem::Problem;
use crate::console::session::Visitor;
use crate::console::{Console, Desk};

#[derive(Template)]
#[template(path = "search.html")]
struct Page {
    frame: Frame,
    q: String,
    participant: String,
    rail: String,
    states: Vec<(&'static str, bool)>,
    error: String,
    from: String,
    to: String,
    rows: Vec<Row>,
    next: Option<String>,
}

/// What the form asks; empty fields ask nothing.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Form {
    /// The id of an outbox, an instruction or a key: whichever it is.
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
    State(desk): State<Desk>,
    visitor: Visitor,
    Asked(form): Asked<Form>,
) -> Result<Response, Refusal> {
    let q = form.q.trim().to_owned();
    bounded("what is looked for", &q)?;
    if let Ok(id) = q.parse::<OutboxId>()
        && desk.database.read(async |client| reading::outbox(client, id).await).await?.is_some()
    {
        return Ok(Redirect::to(&format!("/outboxes/{id}")).into_response());
    }
    let found = form.found(&desk, &q).await?;
    let next = found.next_cursor.map(|cursor| form.path(&cursor));
    let state = form.state.clone();
    Ok(shown(&Page {
        frame: Frame::new(&desk, &visitor, "/search"),
        q,
        participant: form.participant_id,
        rail: form.rail_type,
        states: OutboxState::ALL.iter().map(|word| (word.as_str(), word.as_str() == state)).collect(),
        error: form.error_code,
        from: form.from,
        to: form.to,
        rows: found.items.into_iter().map(Row::from).collect(),
        next,
    }))
}

impl Form {
    /// What fits: an instruction of that name, or else a key.
    async fn found(
        &self,
        desk: &Console,
        q: &str,
    ) -> Result<crate::console::paging::Page<reading::Outbox>, Problem> {
        let state = match some(&self.state) {
            None => None,
            Some(state) => Some(state.parse().map_err(|error| Problem::bad(format!("{error}")))?),
        };
        let query = Query {
            participant_id: some(&self.participant_id),
            rail_type: some(&self.rail_type),
            state,
            error_code: some(&self.error_code),
            from: moment("from", &self.from)?,
            to: moment("to", &self.to)?,
            cursor: some(&self.cursor),
            ..Query::default()
        };
        if q.is_empty() {
            return query.page(desk).await;
        }
        let by_instruction = Query { instruction_id: some(q), ..query.clone() }.page(desk).await?;
        if !by_instruction.items.is_empty() || by_instruction.next_cursor.is_some() {
            return Ok(by_instruction);
        }
        Query { idempotency_key: some(q), ..query }.page(desk).await
    }

    /// The same from another place on.
    fn path(&self, cursor: &str) -> String {
        link(
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
