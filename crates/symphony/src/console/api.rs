//! The API under `/api/v1`, one resource a file.

mod audit;
mod dead_letters;
mod events;
mod leases;
mod metadata;
mod operations;
mod outboxes;
mod overview;
mod participants;
mod rails;
mod warrant;

use serde_json::Value;

use super::access::Scope;
use super::endpoint::{Endpoint, Nothing};
use super::openapi;

pub(crate) use audit::{EXPORTS, EXPORTS_PER_TOKEN, Export, Written, story_file};
pub(crate) use dead_letters::Redrive;
pub(crate) use events::{EventQuery, event_payload, event_story};
pub(crate) use metadata::{MetadataQuery, MetadataStory, metadata_payload, metadata_story};
pub(crate) use outboxes::{Query, Story, story};
pub(crate) use overview::{Overview, Payments, Relayer, overview};
pub(crate) use rails::{RailAction, rails};
pub(crate) use warrant::Warrant;

/// Every endpoint there is.
pub(crate) fn endpoints() -> Vec<Endpoint> {
    let mut all =
        vec![Endpoint::get::<Nothing, Value, _>("/openapi.json", Scope::Read, "This description.", async || {
            axum::Json(description())
        })];
    all.extend(overview::endpoints());
    all.extend(rails::endpoints());
    all.extend(outboxes::endpoints());
    all.extend(dead_letters::endpoints());
    all.extend(operations::endpoints());
    all.extend(audit::endpoints());
    all.extend(leases::endpoints());
    all.extend(participants::endpoints());
    all.extend(events::endpoints());
    all.extend(metadata::endpoints());
    all
}

/// The API in OpenAPI 3.1.
pub(crate) fn description() -> Value {
    openapi::document(&endpoints())
}
