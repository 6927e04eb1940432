//! Orphaned outcomes: what relayers know about payments whose history the database has lost.

use axum::Json;
use axum::extract::State;
use symphony_db::payment::reader::{self, OrphanedOutcome};

use crate::ConsoleState;
use crate::access::Scope;
use crate::endpoint::{Endpoint, NoParams};
use crate::paging::Page;
use crate::problem::Problem;

/// How many are listed.
const MAX_LISTED: u16 = 1000;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![Endpoint::get::<NoParams, Page<OrphanedOutcome>, _>(
        "/orphans",
        Scope::Read,
        "The newest 1,000 orphaned outcomes: what the bank answered to payments whose history the database has lost.",
        list,
    )]
}

async fn list(State(console): State<ConsoleState>) -> Result<Json<Page<OrphanedOutcome>>, Problem> {
    let items = console.database.read(async |client| reader::orphans(client, MAX_LISTED).await).await?;
    Ok(Json(Page { items, next_cursor: None }))
}
