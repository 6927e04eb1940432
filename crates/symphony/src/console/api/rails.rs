//! The rails: their policies, and what may be done to them.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::Deserialize;
use symphony_outbox::payment::operator::{self, Repaired};
use symphony_outbox::payment::{Rail, RailPolicy, reading};

use super::warrant::Warrant;
use crate::console::access::{Caller, HIDDEN, Scope};
use crate::console::endpoint::{Endpoint, Nothing};
use crate::console::given::{Given, NameInPath};
use crate::console::paging::Page;
use crate::console::problem::Problem;
use crate::console::{Console, Desk};

/// A change of policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Change {
    /// What to set. What is left out stays as it is; null empties what may be empty.
    policy: RailPolicy,
    /// Who does it.
    #[serde(default)]
    actor: String,
    /// Why.
    reason: String,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<Nothing, Page<Rail>, _>("/rails", Scope::Read, "The rails and their policies.", list),
        Endpoint::get::<Nothing, Rail, _>("/rails/{rail_type}", Scope::Read, "One rail and its policy.", one),
        Endpoint::post::<Change, Rail, _>(
            "/rails/{rail_type}/policy",
            "Register a rail or change its policy.",
            set,
        ),
        Endpoint::post::<Warrant, Rail, _>(
            "/rails/{rail_type}/pause",
            "Stop handing out the work of a rail.",
            pause,
        ),
        Endpoint::post::<Warrant, Rail, _>(
            "/rails/{rail_type}/resume",
            "Hand out the work of a rail again.",
            resume,
        ),
        Endpoint::post::<Warrant, Repaired, _>(
            "/rails/{rail_type}/repair",
            "End the expired leases of a rail now, at most a thousand.",
            repair,
        ),
    ]
}

async fn list(State(desk): State<Desk>, caller: Caller) -> Result<Json<Page<Rail>>, Problem> {
    Ok(Json(Page { items: rails(&desk, &caller).await?, next_cursor: None }))
}

async fn one(
    State(desk): State<Desk>,
    caller: Caller,
    NameInPath(name): NameInPath,
) -> Result<Json<Rail>, Problem> {
    let rail = rails(&desk, &caller).await?.into_iter().find(|rail| rail.rail_type == name);
    Ok(Json(rail.ok_or_else(|| Problem::missing("rail of that name"))?))
}

/// The rails, as much as this caller may know.
pub(crate) async fn rails(desk: &Console, caller: &Caller) -> Result<Vec<Rail>, Problem> {
    let mut rails = desk.database.read(async |client| reading::rails(client).await).await?;
    if !caller.may_know_people() {
        for rail in &mut rails {
            HIDDEN.clone_into(&mut rail.updated_by);
        }
    }
    Ok(rails)
}

async fn set(
    State(desk): State<Desk>,
    caller: Caller,
    NameInPath(name): NameInPath,
    Given(change): Given<Change>,
) -> Result<Json<Rail>, Problem> {
    let signed = Warrant { actor: change.actor, reason: change.reason }.signed(&caller)?;
    let set = async |client: &_| operator::set_rail(client, &name, &change.policy, signed.given()).await;
    Ok(Json(desk.database.act(set).await?))
}

async fn pause(
    State(desk): State<Desk>,
    caller: Caller,
    NameInPath(name): NameInPath,
    Given(warrant): Given<Warrant>,
) -> Result<Json<Rail>, Problem> {
    let signed = warrant.signed(&caller)?;
    Ok(Json(desk.database.act(async |client| operator::pause(client, &name, signed.given()).await).await?))
}

async fn resume(
    State(desk): State<Desk>,
    caller: Caller,
    NameInPath(name): NameInPath,
    Given(warrant): Given<Warrant>,
) -> Result<Json<Rail>, Problem> {
    let signed = warrant.signed(&caller)?;
    Ok(Json(desk.database.act(async |client| operator::resume(client, &name, signed.given()).await).await?))
}

async fn repair(
    State(desk): State<Desk>,
    caller: Caller,
    NameInPath(name): NameInPath,
    Given(warrant): Given<Warrant>,
) -> Result<Json<Repaired>, Problem> {
    let signed = warrant.signed(&caller)?;
    Ok(Json(desk.database.act(async |client| operator::repair(client, &name, signed.given()).await).await?))
}
