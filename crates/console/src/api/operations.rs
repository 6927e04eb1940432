//! The audit log: what operators did, when and why.

use axum::Json;
use axum::extract::State;
use symphony_db::payment::reader::{self, Operation};

use super::participants::PageParams;
use crate::ConsoleState;
use crate::access::Scope;
use crate::endpoint::Endpoint;
use crate::extract::QueryParams;
use crate::paging::{self, CursorKind, Page};
use crate::problem::Problem;

pub(super) fn endpoints() -> Vec<Endpoint> {
    let summary = "The audit log, latest first: redrives, resolutions, rail changes, repairs and erasures.";
    vec![Endpoint::get::<PageParams, Page<Operation>, _>("/operations", Scope::Audit, summary, log)]
}

async fn log(
    State(console): State<ConsoleState>,
    QueryParams(params): QueryParams<PageParams>,
) -> Result<Json<Page<Operation>>, Problem> {
    let limit = paging::limit(params.limit)?;
    let before = paging::decode_uuid(CursorKind::Operation, params.cursor.as_deref())?;
    let items = console.database.read(async |client| reader::operations_log(client, before, limit).await).await?;
    Ok(Json(paging::page(items, limit, |last| {
        paging::encode(CursorKind::Operation, last.operation_id.as_bytes())
    })))
}
