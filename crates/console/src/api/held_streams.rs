//! The failures that hold the later payments of their participant.

use axum::Json;
use axum::extract::State;
use symphony_db::BatchSize;
use symphony_db::payment::reader::{self, HeldStream};

use crate::ConsoleState;
use crate::access::Scope;
use crate::endpoint::{Endpoint, NoParams};
use crate::paging::Page;
use crate::problem::Problem;

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![Endpoint::get::<NoParams, Page<HeldStream>, _>(
        "/held-streams",
        Scope::Read,
        "The failures that hold the later payments of their participant, on ordered rails with on_failure HOLD: the oldest \
         1,000.",
        list,
    )]
}

async fn list(State(console): State<ConsoleState>) -> Result<Json<Page<HeldStream>>, Problem> {
    let items = console.database.read(async |client| reader::held_streams(client, BatchSize::MAX).await).await?;
    Ok(Json(Page { items, next_cursor: None }))
}
