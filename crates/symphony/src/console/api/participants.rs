//! The participants, and the stream of each.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use symphony_outbox::payment::reading::{self, Outbox, Participant, Search};

use super::outboxes::page;
use crate::console::Desk;
use crate::console::access::Scope;
use crate::console::endpoint::Endpoint;
use crate::console::given::{Asked, NameInPath};
use crate::console::paging::{self, Kind, Page};
use crate::console::problem::Problem;

/// Which page.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Paging {
    /// At most so many, 1 to 200; 50 if it is left out.
    pub(crate) limit: Option<i32>,
    /// Where a page before this one ended.
    pub(crate) cursor: Option<String>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<Paging, Page<Participant>, _>(
            "/participants",
            Scope::Read,
            "The participants, by name.",
            list,
        ),
        Endpoint::get::<Paging, Page<Outbox>, _>(
            "/participants/{participant_id}",
            Scope::Read,
            "The outboxes of one participant, the last of its sequence first.",
            stream,
        ),
    ]
}

async fn list(State(desk): State<Desk>, Asked(asked): Asked<Paging>) -> Result<Json<Page<Participant>>, Problem> {
    let limit = paging::limit(asked.limit)?;
    let after = paging::place(Kind::Participant, asked.cursor.as_deref())?.unwrap_or_default();
    let after =
        String::from_utf8(after).map_err(|_| Problem::bad("the cursor is not one that this list gave out"))?;
    let items = desk.database.read(async |client| reading::participants(client, &after, limit).await).await?;
    let full = i32::try_from(items.len()).is_ok_and(|count| count == limit);
    let last = items.last().filter(|_| full);
    let next_cursor = last.map(|last| paging::cursor(Kind::Participant, last.participant_id.as_bytes()));
    Ok(Json(Page { items, next_cursor }))
}

async fn stream(
    State(desk): State<Desk>,
    NameInPath(participant_id): NameInPath,
    Asked(asked): Asked<Paging>,
) -> Result<Json<Page<Outbox>>, Problem> {
    let limit = paging::limit(asked.limit)?;
    let before = paging::id(Kind::Outbox, asked.cursor.as_deref())?.map(Into::into);
    let search = Search { participant_id: Some(participant_id), before, ..Search::default() };
    let found = desk.database.read(async |client| reading::search(client, &search, limit).await).await?;
    Ok(Json(page(found)))
}
