//! Participants, and the payments of one participant.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use symphony_db::payment::reader::{self, Outbox, OutboxSearch, Participant};

use super::outboxes::page;
use crate::ConsoleState;
use crate::access::Scope;
use crate::endpoint::Endpoint;
use crate::extract::{PathName, QueryParams};
use crate::paging::{self, CursorKind, Page};
use crate::problem::Problem;

/// The page of a list.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PageParams {
    /// Items per page, 1 to 200; 50 if left out.
    pub(crate) limit: Option<i32>,
    /// The next_cursor of the page before.
    pub(crate) cursor: Option<String>,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<PageParams, Page<Participant>, _>(
            "/participants",
            Scope::Read,
            "Participants, by name.",
            list,
        ),
        Endpoint::get::<PageParams, Page<Outbox>, _>(
            "/participants/{participant_id}",
            Scope::Read,
            "The outboxes of one participant, latest first.",
            one,
        ),
    ]
}

async fn list(
    State(console): State<ConsoleState>,
    QueryParams(params): QueryParams<PageParams>,
) -> Result<Json<Page<Participant>>, Problem> {
    let limit = paging::limit(params.limit)?;
    let after = paging::decode(CursorKind::Participant, params.cursor.as_deref())?.unwrap_or_default();
    let after = String::from_utf8(after).map_err(|_| paging::invalid_cursor())?;
    let items = console.database.read(async |client| reader::participants(client, &after, limit).await).await?;
    Ok(Json(paging::page(items, limit, |last| {
        paging::encode(CursorKind::Participant, last.participant_id.as_bytes())
    })))
}

async fn one(
    State(console): State<ConsoleState>,
    PathName(participant_id): PathName,
    QueryParams(params): QueryParams<PageParams>,
) -> Result<Json<Page<Outbox>>, Problem> {
    let limit = paging::limit(params.limit)?;
    let before = paging::decode_uuid(CursorKind::Outbox, params.cursor.as_deref())?.map(Into::into);
    let search = OutboxSearch { participant_id: Some(participant_id), before, ..OutboxSearch::default() };
    let found = console.database.read(async |client| reader::search(client, &search, limit).await).await?;
    Ok(Json(page(found)))
}
