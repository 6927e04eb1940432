//! Payments: search, one outbox with its timeline, its payload, redrive, resolve, cancel and erase.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_db::OutboxId;
use symphony_db::payment::operator::{self, Cancelled, Erased, Redriven, Resolved};
use symphony_db::payment::reader::{self, Operation, Outbox, OutboxSearch, TimelineEvent};
use symphony_db::payment::{OutboxState, Payload, Resolution};

use super::audit_context::AuditContext;
use super::{ListQuery, list};
use crate::access::{Caller, HIDDEN, Scope};
use crate::endpoint::{Endpoint, NoParams};
use crate::extract::{JsonBody, PathId, optional_name};
use crate::openapi;
use crate::paging::{self, CursorKind, Page};
use crate::problem::Problem;
use crate::{Console, ConsoleState};

/// A search for outboxes. Fields that are left out do not filter.
#[derive(Clone, Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OutboxQuery {
    /// The producer's own id of the payment.
    pub(crate) instruction_id: Option<String>,
    /// The participant whose payments are numbered in one sequence.
    pub(crate) participant_id: Option<String>,
    /// The idempotency key, the same on every attempt.
    pub(crate) idempotency_key: Option<String>,
    /// The rail.
    pub(crate) rail_type: Option<String>,
    /// The state.
    pub(crate) state: Option<OutboxState>,
    /// The error code of the latest attempt.
    pub(crate) error_code: Option<String>,
    /// Enqueued at this time or later.
    pub(crate) from: Option<Timestamp>,
    /// Enqueued before this time.
    pub(crate) to: Option<Timestamp>,
    /// Items per page, 1 to 200; 50 if left out.
    pub(crate) limit: Option<i32>,
    /// The next_cursor of the page before.
    pub(crate) cursor: Option<String>,
}

impl ListQuery for OutboxQuery {
    type Item = Outbox;

    async fn page(self, console: &Console) -> Result<Page<Outbox>, Problem> {
        let limit = paging::limit(self.limit)?;
        let search = OutboxSearch {
            instruction_id: optional_name("instruction_id", self.instruction_id)?,
            participant_id: optional_name("participant_id", self.participant_id)?,
            idempotency_key: optional_name("idempotency_key", self.idempotency_key)?,
            rail_type: optional_name("rail_type", self.rail_type)?,
            state: self.state,
            error_code: optional_name("error_code", self.error_code)?,
            from: self.from,
            to: self.to,
            before: paging::decode_uuid(CursorKind::Outbox, self.cursor.as_deref())?.map(Into::into),
        };
        Ok(page(console.database.read(async |client| reader::search(client, &search, limit).await).await?))
    }
}

/// One outbox with its timeline, without its payload.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OutboxTimeline {
    /// The outbox.
    pub(crate) outbox: Outbox,
    /// Its events, oldest first.
    pub(crate) events: Vec<TimelineEvent>,
    /// What operators did to it, oldest first. Only the scopes operate and audit see who and why.
    pub(crate) operations: Vec<Operation>,
}

/// A redrive, under the same key or as another payment.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RedriveRequest {
    /// For a payment that the bank has refused: it answers the old key with the same refusal.
    pub(crate) replacement: Option<Replacement>,
    /// The operator. The API puts the name of the token in front; required without tokens.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    pub(crate) actor: String,
    /// The reason.
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    pub(crate) reason: String,
}

/// What makes a redrive another payment at the bank.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Replacement {
    /// A new idempotency key.
    #[schemars(length(min = 1, max = 200), regex(pattern = openapi::NOT_BLANK))]
    pub(crate) idempotency_key: String,
    /// Its payload; the old one if left out.
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub(crate) payload: Option<Payload>,
}

/// A decision about a terminal failure.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ResolveRequest {
    /// PAID, NOT_PAID, or SKIPPED for a known failure that is not to be paid any more.
    resolution: Resolution,
    /// The operator. The API puts the name of the token in front; required without tokens.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    actor: String,
    /// The evidence, such as the bank's answer.
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    reason: String,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<OutboxQuery, Page<Outbox>, _>(
            "/outboxes",
            Scope::Read,
            "Search outboxes, newest first.",
            list::<OutboxQuery>,
        ),
        Endpoint::get::<NoParams, OutboxTimeline, _>(
            "/outboxes/{outbox_id}",
            Scope::Read,
            "One outbox with its timeline.",
            one,
        ),
        Endpoint::get::<NoParams, serde_json::Value, _>(
            "/outboxes/{outbox_id}/payload",
            Scope::Audit,
            "The payload that is sent to the rail.",
            payload,
        ),
        Endpoint::post::<RedriveRequest, Redriven, _>(
            "/outboxes/{outbox_id}/redrive",
            "Redrive a terminal failure as a new outbox, under the same idempotency key or a new one.",
            redrive,
        ),
        Endpoint::post::<AuditContext, Cancelled, _>(
            "/outboxes/{outbox_id}/cancel",
            "Cancel a payment that was never sent.",
            cancel,
        ),
        Endpoint::post::<ResolveRequest, Resolved, _>(
            "/outboxes/{outbox_id}/resolve",
            "Resolve a terminal failure: record whether it was paid.",
            resolve,
        ),
        Endpoint::post::<AuditContext, Erased, _>(
            "/outboxes/{outbox_id}/erase",
            "Erase the payload of a payment that has ended, in all outboxes that redrives link with it.",
            erase,
        ),
    ]
}

/// A page of outboxes with its cursor.
pub(super) fn page(found: symphony_db::Page<Outbox, OutboxId>) -> Page<Outbox> {
    let next_cursor = found.next.map(|id| paging::encode(CursorKind::Outbox, id.0.as_bytes()));
    Page { items: found.rows, next_cursor }
}

async fn one(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathId(id): PathId<OutboxId>,
) -> Result<Json<OutboxTimeline>, Problem> {
    Ok(Json(outbox_timeline(&console, &caller, id).await?))
}

/// One outbox with its timeline. Without the scope operate or audit it names no operator.
pub(crate) async fn outbox_timeline(
    console: &Console,
    caller: &Caller,
    id: OutboxId,
) -> Result<OutboxTimeline, Problem> {
    let read = async |client: &_| {
        let Some(outbox) = reader::outbox(client, id).await? else { return Ok(None) };
        let (events, operations) = (reader::timeline(client, id).await?, reader::operations(client, id).await?);
        Ok(Some(OutboxTimeline { outbox, events, operations }))
    };
    let Some(mut timeline) = console.database.read(read).await? else {
        return Err(archived_or_not_found(console, id).await?);
    };
    if !caller.may_see_operators() {
        for operation in &mut timeline.operations {
            for field in [&mut operation.actor, &mut operation.reason, &mut operation.database_user] {
                HIDDEN.clone_into(field);
            }
        }
        for event in &mut timeline.events {
            event.database_user = None;
            if event.attempt_no.is_none() {
                event.worker_id = None;
            }
        }
    }
    Ok(timeline)
}

async fn payload(
    State(console): State<ConsoleState>,
    PathId(id): PathId<OutboxId>,
) -> Result<Json<Payload>, Problem> {
    Ok(Json(outbox_payload(&console, id).await?))
}

/// The payload of one outbox.
pub(crate) async fn outbox_payload(console: &Console, id: OutboxId) -> Result<Payload, Problem> {
    let payload = console.database.read(async |client| reader::payload(client, id).await).await?;
    payload.ok_or_else(not_found)
}

/// Says where the ledger rows of an outbox were archived, if its time is that of an archive.
async fn archived_or_not_found(console: &Console, id: OutboxId) -> Result<Problem, Problem> {
    let id = id.to_string();
    let found = console.database.read(async |client| reader::archived_outboxes(client, &id).await).await?;
    Ok(found.first().map_or_else(not_found, |found| {
        let at = found.archived_at.strftime("%Y-%m-%d");
        let place = &found.location;
        Problem::not_found(if found.is_registered {
            format!("ledger row of this outbox: it was archived on {at}, in {place}")
        } else {
            format!("outbox with this id in the database; the ledger rows of its time were archived on {at}, in {place}")
        })
    }))
}

fn not_found() -> Problem {
    Problem::not_found("outbox with this id")
}

async fn redrive(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathId(id): PathId<OutboxId>,
    JsonBody(request): JsonBody<RedriveRequest>,
) -> Result<Json<Redriven>, Problem> {
    Ok(Json(request.run(&console, &caller, id).await?))
}

impl RedriveRequest {
    pub(crate) async fn run(self, console: &Console, caller: &Caller, id: OutboxId) -> Result<Redriven, Problem> {
        let Self { replacement, actor, reason } = self;
        let audit = AuditContext { actor, reason }.for_caller(caller)?;
        let Some(Replacement { idempotency_key: key, payload }) = replacement else {
            return console.database.act(async |client| operator::redrive(client, id, audit.as_db()).await).await;
        };
        let replace =
            async |client: &_| operator::replace(client, id, &key, payload.as_ref(), audit.as_db()).await;
        console.database.act(replace).await
    }
}

async fn cancel(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathId(id): PathId<OutboxId>,
    JsonBody(audit_context): JsonBody<AuditContext>,
) -> Result<Json<Cancelled>, Problem> {
    Ok(Json(cancel_outbox(&console, &caller, id, audit_context).await?))
}

/// Cancels the payment of a pending outbox, which is the newest one of its key.
pub(crate) async fn cancel_outbox(
    console: &Console,
    caller: &Caller,
    id: OutboxId,
    audit: AuditContext,
) -> Result<Cancelled, Problem> {
    let audit = audit.for_caller(caller)?;
    let found = console.database.read(async |client| reader::outbox(client, id).await).await?;
    let outbox = found.ok_or_else(not_found)?;
    if outbox.ended_at.is_some() {
        return Err(Problem::new(StatusCode::CONFLICT, format!("outbox {id} has ended as {}", outbox.state)));
    }
    let cancel = async |client: &_| {
        operator::cancel(client, &outbox.instruction_id, &outbox.idempotency_key, audit.as_db()).await
    };
    console.database.act(cancel).await
}

async fn resolve(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathId(id): PathId<OutboxId>,
    JsonBody(request): JsonBody<ResolveRequest>,
) -> Result<Json<Resolved>, Problem> {
    let audit = AuditContext { actor: request.actor, reason: request.reason }.for_caller(&caller)?;
    let resolve = async |client: &_| operator::resolve(client, id, request.resolution, audit.as_db()).await;
    Ok(Json(console.database.act(resolve).await?))
}

async fn erase(
    State(console): State<ConsoleState>,
    caller: Caller,
    PathId(id): PathId<OutboxId>,
    JsonBody(audit_context): JsonBody<AuditContext>,
) -> Result<Json<Erased>, Problem> {
    let audit = audit_context.for_caller(&caller)?;
    Ok(Json(console.database.act(async |client| operator::erase(client, id, audit.as_db()).await).await?))
}
