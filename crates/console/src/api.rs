//! The API under `/api/v1`, one resource per file.

mod audit;
mod audit_context;
mod dead_letters;
mod events;
mod held_streams;
mod leases;
mod metadata;
mod operations;
mod orphans;
mod outboxes;
mod overview;
mod participants;
mod rails;
mod same_endpoints;

use axum::Json;
use axum::extract::State;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::access::Scope;
use super::endpoint::{Endpoint, NoParams};
use super::extract::QueryParams;
use super::openapi;
use super::paging::Page;
use super::problem::Problem;
use super::{Console, ConsoleState};

pub(crate) use audit::{ExportFormat, MAX_EXPORTS, MAX_EXPORTS_PER_TOKEN, OperationsExport, timeline_file};
pub(crate) use audit_context::AuditContext;
pub(crate) use dead_letters::BulkRedrive;
pub(crate) use events::{EventQuery, event_details, event_payload};
pub(crate) use metadata::{MetadataDetails, MetadataQuery, metadata_details, metadata_payload};
pub(crate) use outboxes::{
    OutboxQuery, OutboxTimeline, RedriveRequest, Replacement, cancel_outbox, outbox_payload, outbox_timeline,
};
pub(crate) use overview::{Overview, Payments, Relayer, overview};
pub(crate) use rails::{RailAction, rails};

/// The query of a list: a search that returns one page.
pub(crate) trait ListQuery: DeserializeOwned + Send {
    /// What the list contains.
    type Item;

    /// Reads the page.
    async fn page(self, console: &Console) -> Result<Page<Self::Item>, Problem>;
}

/// The handler of a list.
async fn list<Q: ListQuery>(
    State(console): State<ConsoleState>,
    QueryParams(query): QueryParams<Q>,
) -> Result<Json<Page<Q::Item>>, Problem> {
    Ok(Json(query.page(&console).await?))
}

/// All endpoints.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut all = vec![Endpoint::get::<NoParams, Value, _>(
        "/openapi.json",
        Scope::Read,
        "This OpenAPI description.",
        async || Json(description()),
    )];
    all.extend(overview::endpoints());
    all.extend(rails::endpoints());
    all.extend(same_endpoints::endpoints());
    all.extend(held_streams::endpoints());
    all.extend(outboxes::endpoints());
    all.extend(dead_letters::endpoints());
    all.extend(operations::endpoints());
    all.extend(orphans::endpoints());
    all.extend(audit::endpoints());
    all.extend(leases::endpoints());
    all.extend(participants::endpoints());
    all.extend(events::endpoints());
    all.extend(metadata::endpoints());
    all
}

/// The OpenAPI 3.1 description of the API.
pub fn description() -> Value {
    openapi::document(&endpoints())
}
