//! The rails: their policies, and what may be done to them.

use axum::Json;
use axum::extract::State;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_outbox::payment::operator::{self, Repaired};
use symphony_outbox::payment::{Rail, RailPolicy, reading};

use super::warrant::Warrant;
use crate::console::access::{Caller, HIDDEN, Scope};
use crate::console::endpoint::{Endpoint, Nothing};
use crate::console::given::{self, Given, NameInPath};
use crate::console::openapi;
use crate::console::paging::Page;
use crate::console::problem::Problem;
use crate::console::{Console, Desk};

/// A change of policy.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Change {
    /// What to set. What is left out stays as it is; null empties what may be empty.
    #[serde(deserialize_with = "given::object")]
    policy: RailPolicy,
    /// Who does it.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    actor: String,
    /// Why.
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    reason: String,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    let doing = |action: RailAction| {
        move |State(desk): State<Desk>,
              caller: Caller,
              NameInPath(name): NameInPath,
              Given(warrant): Given<Warrant>| async move {
            action.carry_out(&desk, &caller, &name, warrant).await.map(Json)
        }
    };
    vec![
        Endpoint::get::<Nothing, Page<Rail>, _>("/rails", Scope::Read, "The rails and their policies.", list),
        Endpoint::get::<Nothing, Rail, _>("/rails/{rail_type}", Scope::Read, "One rail and its policy.", one),
        Endpoint::post::<Change, Rail, _>(
            "/rails/{rail_type}/register",
            "Register a rail. What the policy leaves out takes its default.",
            register,
        ),
        Endpoint::post::<Change, Rail, _>(
            "/rails/{rail_type}/policy",
            "Change the policy of a registered rail.",
            set,
        ),
        Endpoint::post::<Warrant, Rail, _>(
            "/rails/{rail_type}/retire",
            "Retire a rail without pending payments: nothing more can be enqueued to it.",
            doing(RailAction::Retire),
        ),
        Endpoint::post::<Warrant, Rail, _>(
            "/rails/{rail_type}/pause",
            "Stop handing out the work of a rail.",
            doing(RailAction::Pause),
        ),
        Endpoint::post::<Warrant, Rail, _>(
            "/rails/{rail_type}/resume",
            "Hand out the work of a rail again.",
            doing(RailAction::Resume),
        ),
        Endpoint::post::<Warrant, Repaired, _>(
            "/rails/{rail_type}/repair",
            "End the expired leases of a rail now, at most a thousand.",
            doing(RailAction::Repair),
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

async fn register(
    State(desk): State<Desk>,
    caller: Caller,
    NameInPath(name): NameInPath,
    Given(change): Given<Change>,
) -> Result<Json<Rail>, Problem> {
    let signed = Warrant { actor: change.actor, reason: change.reason }.signed(&caller)?;
    let register = async |client: &_| operator::register_rail(client, &name, &change.policy, signed.given()).await;
    Ok(Json(desk.database.act(register).await?))
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

/// What is done to a rail for a reason and nothing else.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RailAction {
    Pause,
    Resume,
    Retire,
    Repair,
}

/// What came of it: the rail as it is now, or what a repair found.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(crate) enum RailDone {
    Switched(Rail),
    Repaired(Repaired),
}

impl RailAction {
    /// Does it.
    pub(crate) async fn carry_out(
        self,
        desk: &Console,
        caller: &Caller,
        name: &str,
        warrant: Warrant,
    ) -> Result<RailDone, Problem> {
        let signed = warrant.signed(caller)?;
        let act = async |client: &_| {
            Ok(match self {
                Self::Pause => RailDone::Switched(operator::pause(client, name, signed.given()).await?),
                Self::Resume => RailDone::Switched(operator::resume(client, name, signed.given()).await?),
                Self::Retire => RailDone::Switched(operator::retire(client, name, signed.given()).await?),
                Self::Repair => RailDone::Repaired(operator::repair(client, name, signed.given()).await?),
            })
        };
        desk.database.act(act).await
    }
}
