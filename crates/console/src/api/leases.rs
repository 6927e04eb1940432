//! Current leases, by worker and rail.

use axum::Json;
use axum::extract::State;
use symphony_db::payment::reader::{self, WorkerLeases};

use crate::ConsoleState;
use crate::access::Scope;
use crate::endpoint::{Endpoint, NoParams};
use crate::paging::Page;
use crate::problem::Problem;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let summary = "Current leases, by worker and rail.";
    vec![Endpoint::get::<NoParams, Page<WorkerLeases>, _>("/leases", Scope::Read, summary, leases)]
}

async fn leases(State(console): State<ConsoleState>) -> Result<Json<Page<WorkerLeases>>, Problem> {
    let items = console.database.read(async |client| reader::leases(client).await).await?;
    Ok(Json(Page { items, next_cursor: None }))
}
