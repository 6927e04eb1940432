//! What people did: who, when and why.

use axum::Json;
use axum::extract::State;
use symphony_outbox::payment::reading::{self, Operation};

use super::participants::Paging;
use crate::console::Desk;
use crate::console::access::Scope;
use crate::console::endpoint::Endpoint;
use crate::console::given::Asked;
use crate::console::paging::{self, Kind, Page};
use crate::console::problem::Problem;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let summary = "The log of operations, the latest first: redrives, resolutions, rail changes and repairs.";
    vec![Endpoint::get::<Paging, Page<Operation>, _>("/operations", Scope::Audit, summary, log)]
}

async fn log(State(desk): State<Desk>, Asked(asked): Asked<Paging>) -> Result<Json<Page<Operation>>, Problem> {
    let limit = paging::limit(asked.limit)?;
    let before = paging::id(Kind::Operation, asked.cursor.as_deref())?;
    let items = desk.database.read(async |client| reading::log_of_operations(client, before, limit).await).await?;
    let full = i32::try_from(items.len()).is_ok_and(|count| count == limit);
    let last = items.last().filter(|_| full);
    let next_cursor = last.map(|last| paging::cursor(Kind::Operation, last.operation_id.as_bytes()));
    Ok(Json(Page { items, next_cursor }))
}
