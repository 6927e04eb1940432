//! The endpoints of a rail that operators declared to be the same bank.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use symphony_db::payment::operator::{self, EndpointOperation};
use symphony_db::payment::reader::{self, SameEndpoint};

use super::audit_context::AuditContext;
use crate::ConsoleState;
use crate::access::{Caller, HIDDEN, Scope};
use crate::endpoint::{Endpoint, NoParams};
use crate::extract::{JsonBody, PathName};
use crate::openapi;
use crate::paging::Page;
use crate::problem::Problem;

/// Two endpoints of a rail.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct EndpointPair {
    /// An endpoint, as the ledger names it; `unnamed` stands for attempts without one.
    #[schemars(length(min = 1, max = 200), regex(pattern = openapi::NOT_BLANK))]
    endpoint: String,
    /// Another endpoint of the same bank.
    #[schemars(length(min = 1, max = 200), regex(pattern = openapi::NOT_BLANK))]
    same_as: String,
    /// The operator. The API puts the name of the token in front; required without tokens.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    actor: String,
    /// The reason.
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    reason: String,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<NoParams, Page<SameEndpoint>, _>(
            "/same-endpoints",
            Scope::Read,
            "The endpoints of rails that operators declared to be the same bank.",
            list,
        ),
        Endpoint::post::<EndpointPair, EndpointOperation, _>(
            "/rails/{rail_type}/same-endpoint",
            "Declare two endpoints of a rail to be the same bank: relayers then inquire at one about payments of the other.",
            declare,
        ),
        Endpoint::post::<EndpointPair, EndpointOperation, _>(
            "/rails/{rail_type}/same-endpoint/revoke",
            "Revoke such a declaration.",
            revoke,
        ),
    ]
}

/// All declarations. Without the scope operate or audit they name no operator and no reason.
async fn list(State(console): State<ConsoleState>, caller: Caller) -> Result<Json<Page<SameEndpoint>>, Problem> {
    let mut items = console.database.read(async |client| reader::same_endpoints(client).await).await?;
    if !caller.may_see_operators() {
        for pair in &mut items {
            HIDDEN.clone_into(&mut pair.declared_by);
            HIDDEN.clone_into(&mut pair.reason);
        }
    }
    Ok(Json(Page { items, next_cursor: None }))
}

async fn declare(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathName(name): PathName,
    JsonBody(pair): JsonBody<EndpointPair>,
) -> Result<Json<EndpointOperation>, Problem> {
    let EndpointPair { endpoint, same_as, actor, reason } = pair;
    let audit = AuditContext { actor, reason }.for_caller(&caller)?;
    let declare = async |client: &_| {
        operator::declare_same_endpoint(client, &name, (&endpoint, &same_as), audit.as_db()).await
    };
    Ok(Json(console.database.act(declare).await?))
}

async fn revoke(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathName(name): PathName,
    JsonBody(pair): JsonBody<EndpointPair>,
) -> Result<Json<EndpointOperation>, Problem> {
    let EndpointPair { endpoint, same_as, actor, reason } = pair;
    let audit = AuditContext { actor, reason }.for_caller(&caller)?;
    let revoke = async |client: &_| {
        operator::revoke_same_endpoint(client, &name, (&endpoint, &same_as), audit.as_db()).await
    };
    Ok(Json(console.database.act(revoke).await?))
}
