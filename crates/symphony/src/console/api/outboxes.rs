//! Outboxes: searched, told in full, and acted on.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_outbox::OutboxId;
use symphony_outbox::payment::operator::{self, Redriven, Resolved};
use symphony_outbox::payment::reading::{self, Event, Operation, Outbox, Search};
use symphony_outbox::payment::{OutboxState, Payload, Resolution};

use super::warrant::Warrant;
use crate::console::access::{Caller, HIDDEN, Scope};
use crate::console::endpoint::{Endpoint, Nothing};
use crate::console::given::{Asked, Given, OutboxInPath, asked};
use crate::console::openapi;
use crate::console::paging::{self, Kind, Page};
use crate::console::problem::Problem;
use crate::console::{Console, Desk};

/// What to look for. What is left out is not asked.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Query {
    /// The order to pay.
    pub(crate) instruction_id: Option<String>,
    /// The party whose instructions are sequenced.
    pub(crate) participant_id: Option<String>,
    /// The name under which the rail must not pay twice.
    pub(crate) idempotency_key: Option<String>,
    /// The rail.
    pub(crate) rail_type: Option<String>,
    /// What became of it.
    pub(crate) state: Option<OutboxState>,
    /// What went wrong with the latest attempt, by its fixed word.
    pub(crate) error_code: Option<String>,
    /// Enqueued at this moment or later.
    pub(crate) from: Option<Timestamp>,
    /// Enqueued before this moment.
    pub(crate) to: Option<Timestamp>,
    /// At most so many, 1 to 200; 50 if it is left out.
    pub(crate) limit: Option<i32>,
    /// Where a page before this one ended.
    pub(crate) cursor: Option<String>,
}

impl Query {
    /// The page that is asked for.
    pub(crate) async fn page(self, desk: &Console) -> Result<Page<Outbox>, Problem> {
        let limit = paging::limit(self.limit)?;
        let search = Search {
            instruction_id: asked("instruction_id", self.instruction_id)?,
            participant_id: asked("participant_id", self.participant_id)?,
            idempotency_key: asked("idempotency_key", self.idempotency_key)?,
            rail_type: asked("rail_type", self.rail_type)?,
            state: self.state,
            error_code: asked("error_code", self.error_code)?,
            from: self.from,
            to: self.to,
            before: paging::id(Kind::Outbox, self.cursor.as_deref())?.map(Into::into),
        };
        Ok(page(desk.database.read(async |client| reading::search(client, &search, limit).await).await?))
    }
}

/// Everything that is known of one outbox, but for its payload.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Story {
    /// The outbox as it is now.
    pub(crate) outbox: Outbox,
    /// What happened to it, in order.
    pub(crate) events: Vec<Event>,
    /// What people did about it, in order. Who and why is for the scopes operate and audit.
    pub(crate) operations: Vec<Operation>,
}

/// What a person found out.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Finding {
    /// PAID, NOT_PAID, or SKIPPED for a known failure that is let be.
    resolution: Resolution,
    /// Who found it out.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    actor: String,
    /// The evidence.
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    reason: String,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<Query, Page<Outbox>, _>(
            "/outboxes",
            Scope::Read,
            "Search outboxes, newest first.",
            search,
        ),
        Endpoint::get::<Nothing, Story, _>(
            "/outboxes/{outbox_id}",
            Scope::Read,
            "One outbox with its whole story.",
            one,
        ),
        Endpoint::get::<Nothing, serde_json::Value, _>(
            "/outboxes/{outbox_id}/payload",
            Scope::Audit,
            "What the rail is given.",
            payload,
        ),
        Endpoint::post::<Warrant, Redriven, _>(
            "/outboxes/{outbox_id}/redrive",
            "Try a terminal failure again, as a new outbox under the same idempotency key.",
            redrive,
        ),
        Endpoint::post::<Finding, Resolved, _>(
            "/outboxes/{outbox_id}/resolve",
            "Record what a person found out about a terminal failure.",
            resolve,
        ),
    ]
}

/// A page as the API gives it.
pub(super) fn page(found: reading::Page) -> Page<Outbox> {
    let next_cursor = found.next_before.map(|id| paging::cursor(Kind::Outbox, id.0.as_bytes()));
    Page { items: found.outboxes, next_cursor }
}

async fn search(State(desk): State<Desk>, Asked(query): Asked<Query>) -> Result<Json<Page<Outbox>>, Problem> {
    Ok(Json(query.page(&desk).await?))
}

async fn one(
    State(desk): State<Desk>,
    caller: Caller,
    OutboxInPath(id): OutboxInPath,
) -> Result<Json<Story>, Problem> {
    Ok(Json(story(&desk, &caller, id).await?))
}

/// The story of one outbox, as much as this caller may know.
pub(crate) async fn story(desk: &Console, caller: &Caller, id: OutboxId) -> Result<Story, Problem> {
    let read = async |client: &_| {
        let Some(outbox) = reading::outbox(client, id).await? else { return Ok(None) };
        let (events, operations) = (reading::story(client, id).await?, reading::operations(client, id).await?);
        Ok(Some(Story { outbox, events, operations }))
    };
    let mut story = desk.database.read(read).await?.ok_or_else(|| Problem::missing("outbox of that id"))?;
    if !caller.may_know_people() {
        for done in &mut story.operations {
            for words in [&mut done.actor, &mut done.reason, &mut done.database_user] {
                HIDDEN.clone_into(words);
            }
        }
        for event in &mut story.events {
            event.database_user = None;
            if event.attempt_no.is_none() {
                event.worker_id = None;
            }
        }
    }
    Ok(story)
}

async fn payload(State(desk): State<Desk>, OutboxInPath(id): OutboxInPath) -> Result<Json<Payload>, Problem> {
    let payload = desk.database.read(async |client| reading::payload(client, id).await).await?;
    Ok(Json(payload.ok_or_else(|| Problem::missing("outbox of that id"))?))
}

async fn redrive(
    State(desk): State<Desk>,
    caller: Caller,
    OutboxInPath(id): OutboxInPath,
    Given(warrant): Given<Warrant>,
) -> Result<Json<Redriven>, Problem> {
    let signed = warrant.signed(&caller)?;
    Ok(Json(desk.database.act(async |client| operator::redrive(client, id, signed.given()).await).await?))
}

async fn resolve(
    State(desk): State<Desk>,
    caller: Caller,
    OutboxInPath(id): OutboxInPath,
    Given(finding): Given<Finding>,
) -> Result<Json<Resolved>, Problem> {
    let signed = Warrant { actor: finding.actor, reason: finding.reason }.signed(&caller)?;
    let resolve = async |client: &_| operator::resolve(client, id, finding.resolution, signed.given()).await;
    Ok(Json(desk.database.act(resolve).await?))
}
