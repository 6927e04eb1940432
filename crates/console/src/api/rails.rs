//! Rails: policies, registration, and the actions pause, resume, retire and repair.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_db::payment::operator::{self, Repaired};
use symphony_db::payment::{Rail, RailPolicy, reader};

use super::audit_context::AuditContext;
use crate::access::{Caller, HIDDEN, Scope};
use crate::endpoint::{Endpoint, NoParams};
use crate::extract::{self, JsonBody, PathName};
use crate::openapi;
use crate::paging::Page;
use crate::problem::Problem;
use crate::{Console, ConsoleState};

/// A new policy for a rail.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct PolicyChange {
    /// The fields to set. Fields that are left out keep their value; null clears an optional one.
    #[serde(deserialize_with = "extract::json_object")]
    policy: RailPolicy,
    /// The operator. The API puts the name of the token in front; required without tokens.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    actor: String,
    /// The reason.
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    reason: String,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let handler = |action: RailAction| {
        move |State(console): State<ConsoleState>,
              caller: Caller,
              PathName(name): PathName,
              JsonBody(audit_context): JsonBody<AuditContext>| async move {
            action.run(&console, &caller, &name, audit_context).await.map(Json)
        }
    };
    vec![
        Endpoint::get::<NoParams, Page<Rail>, _>("/rails", Scope::Read, "All rails and their policies.", list),
        Endpoint::get::<NoParams, Rail, _>("/rails/{rail_type}", Scope::Read, "One rail and its policy.", one),
        Endpoint::post::<PolicyChange, Rail, _>(
            "/rails/{rail_type}/register",
            "Register a rail. Fields that the policy leaves out get their defaults.",
            register,
        ),
        Endpoint::post::<PolicyChange, Rail, _>(
            "/rails/{rail_type}/policy",
            "Change the policy of a registered rail.",
            set,
        ),
        Endpoint::post::<AuditContext, Rail, _>(
            "/rails/{rail_type}/retire",
            "Retire a rail that has no pending payments: nothing can be enqueued to it any more.",
            handler(RailAction::Retire),
        ),
        Endpoint::post::<AuditContext, Rail, _>(
            "/rails/{rail_type}/pause",
            "Pause a rail: stop claims. Dispatches that hold a lease continue.",
            handler(RailAction::Pause),
        ),
        Endpoint::post::<AuditContext, Rail, _>(
            "/rails/{rail_type}/resume",
            "Resume a paused rail.",
            handler(RailAction::Resume),
        ),
        Endpoint::post::<AuditContext, Repaired, _>(
            "/rails/{rail_type}/repair",
            "Requeue the rows of a rail whose lease has expired, at most 1,000.",
            handler(RailAction::Repair),
        ),
    ]
}

async fn list(State(console): State<ConsoleState>, caller: Caller) -> Result<Json<Page<Rail>>, Problem> {
    Ok(Json(Page { items: rails(&console, &caller).await?, next_cursor: None }))
}

async fn one(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathName(name): PathName,
) -> Result<Json<Rail>, Problem> {
    let rail = rails(&console, &caller).await?.into_iter().find(|rail| rail.rail_type == name);
    Ok(Json(rail.ok_or_else(|| Problem::not_found("rail of this name"))?))
}

/// All rails. Without the scope operate or audit they name no operator.
pub(crate) async fn rails(console: &Console, caller: &Caller) -> Result<Vec<Rail>, Problem> {
    let mut rails = console.database.read(async |client| reader::rails(client).await).await?;
    if !caller.may_see_operators() {
        for rail in &mut rails {
            HIDDEN.clone_into(&mut rail.updated_by);
        }
    }
    Ok(rails)
}

async fn register(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathName(name): PathName,
    JsonBody(change): JsonBody<PolicyChange>,
) -> Result<Json<Rail>, Problem> {
    let audit = AuditContext { actor: change.actor, reason: change.reason }.for_caller(&caller)?;
    let register = async |client: &_| operator::register_rail(client, &name, &change.policy, audit.as_db()).await;
    Ok(Json(console.database.act(register).await?))
}

async fn set(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathName(name): PathName,
    JsonBody(change): JsonBody<PolicyChange>,
) -> Result<Json<Rail>, Problem> {
    let audit = AuditContext { actor: change.actor, reason: change.reason }.for_caller(&caller)?;
    let set = async |client: &_| operator::set_rail(client, &name, &change.policy, audit.as_db()).await;
    Ok(Json(console.database.act(set).await?))
}

/// An action on a rail that needs only an operator and a reason.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RailAction {
    Pause,
    Resume,
    Retire,
    Repair,
}

/// The rail after the action, or the result of a repair.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum RailActionResult {
    Switched(Rail),
    Repaired(Repaired),
}

impl RailAction {
    /// Performs the action.
    pub(crate) async fn run(
        self,
        console: &Console,
        caller: &Caller,
        name: &str,
        audit_context: AuditContext,
    ) -> Result<RailActionResult, Problem> {
        let audit = audit_context.for_caller(caller)?;
        let act = async |client: &_| {
            Ok(match self {
                Self::Pause => RailActionResult::Switched(operator::pause(client, name, audit.as_db()).await?),
                Self::Resume => RailActionResult::Switched(operator::resume(client, name, audit.as_db()).await?),
                Self::Retire => RailActionResult::Switched(operator::retire(client, name, audit.as_db()).await?),
                Self::Repair => RailActionResult::Repaired(operator::repair(client, name, audit.as_db()).await?),
            })
        };
        console.database.act(act).await
    }
}
