//! Who holds leases.

use axum::Json;
use axum::extract::State;
use symphony_outbox::payment::reading::{self, WorkerLeases};

use crate::console::Desk;
use crate::console::access::Scope;
use crate::console::endpoint::{Endpoint, Nothing};
use crate::console::paging::Page;
use crate::console::problem::Problem;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let summary = "The leases that are held now, by worker and rail.";
    vec![Endpoint::get::<Nothing, Page<WorkerLeases>, _>("/leases", Scope::Read, summary, leases)]
}

async fn leases(State(desk): State<Desk>) -> Result<Json<Page<WorkerLeases>>, Problem> {
    let items = desk.database.read(async |client| reading::leases(client).await).await?;
    Ok(Json(Page { items, next_cursor: None }))
}
