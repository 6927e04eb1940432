//! One outbox as a timeline, and what may be done about it.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use serde::Deserialize;
use symphony_outbox::payment::reading::{self, Event, Operation};
use symphony_outbox::payment::{AttemptState, EventKind, OperationKind, OutboxState, Resolution, operator};

use super::form::{Sent, confirmed};
use super::time::{Moment, millis, span};
use super::verdict::Verdict;
use super::{Frame, Refusal, in_path, shown};
use crate::console::Desk;
use crate::console::api::{self, Warrant, Written};
use crate::console::given::{Asked, OutboxInPath};
use crate::console::problem::Problem;
use crate::console::session::Visitor;

#[derive(Template)]
#[template(path = "outbox.html")]
struct Page {
    frame: Frame,
    id: String,
    instruction: String,
    tone: &'static str,
    state: &'static str,
    headline: String,
    next_step: String,
    link: Option<(String, &'static str)>,
    key: String,
    rail: String,
    participant: String,
    participant_path: String,
    sequence: i64,
    reference: Option<String>,
    redrive_of: Option<String>,
    redriven_as: Option<String>,
    steps: Vec<Step>,
    unknown: bool,
    may_resolve: bool,
    not_paid: bool,
    skippable: bool,
    may_redrive: bool,
}

/// One thing that happened.
struct Step {
    when: Timestamp,
    at: Moment,
    after: String,
    tone: &'static str,
    what: String,
    more: String,
}

#[derive(Template)]
#[template(path = "payload.html")]
struct PayloadPage {
    frame: Frame,
    id: String,
    payload: String,
}

pub(super) async fn page(
    State(desk): State<Desk>,
    visitor: Visitor,
    OutboxInPath(id): OutboxInPath,
) -> Result<Response, Refusal> {
    let api::Story { outbox, events, operations } = api::story(&desk, &visitor.caller, id).await?;
    let Verdict { tone, headline, next_step, link } = Verdict::of(&outbox);
    let failed = outbox.state == OutboxState::Failed && outbox.redriven_as.is_none();
    let unknown = outbox.outcome_unknown && outbox.resolution.is_none();
    Ok(shown(&Page {
        frame: Frame::new(&desk, &visitor, ""),
        id: outbox.outbox_id.to_string(),
        participant_path: format!("/participants/{}", in_path(&outbox.participant_id)),
        instruction: outbox.instruction_id,
        tone,
        state: outbox.state.as_str(),
        headline,
        next_step,
        link,
        key: outbox.idempotency_key,
        rail: outbox.rail_type,
        participant: outbox.participant_id,
        sequence: outbox.sequence_id,
        reference: outbox.rail_reference,
        redrive_of: outbox.redrive_of.map(|id| id.to_string()),
        redriven_as: outbox.redriven_as.map(|id| id.to_string()),
        steps: steps(&events, &operations, outbox.outcome_unknown),
        unknown,
        may_resolve: failed && matches!(outbox.resolution, None | Some(Resolution::NotPaid)),
        not_paid: outbox.resolution.is_none(),
        skippable: outbox.resolution.is_none() && !outbox.outcome_unknown,
        may_redrive: failed
            && match outbox.resolution {
                None => !outbox.outcome_unknown,
                Some(Resolution::NotPaid) => true,
                Some(Resolution::Paid | Resolution::Skipped) => false,
            },
    }))
}

pub(super) async fn payload(
    State(desk): State<Desk>,
    visitor: Visitor,
    OutboxInPath(id): OutboxInPath,
) -> Result<Response, Refusal> {
    let payload = desk.database.read(async |client| reading::payload(client, id).await).await?;
    let payload = payload.ok_or_else(|| Problem::missing("outbox of that id"))?;
    let frame = Frame::new(&desk, &visitor, "");
    Ok(shown(&PayloadPage { frame, id: id.to_string(), payload: payload.as_json().to_owned() }))
}

/// The story, as a file.
pub(super) async fn export(
    State(desk): State<Desk>,
    OutboxInPath(id): OutboxInPath,
    Asked(written): Asked<Written>,
) -> Result<Response, Refusal> {
    Ok(api::story_file(&desk, id, written.format).await?)
}

/// What the form of a redrive brings.
#[derive(Deserialize)]
pub(super) struct RedriveForm {
    #[serde(default)]
    actor: String,
    reason: String,
    confirm: String,
}

/// What the form of a resolution brings.
#[derive(Deserialize)]
pub(super) struct ResolveForm {
    resolution: Resolution,
    #[serde(default)]
    actor: String,
    reason: String,
    confirm: String,
}

pub(super) async fn redrive(
    State(desk): State<Desk>,
    visitor: Visitor,
    OutboxInPath(id): OutboxInPath,
    Sent(form): Sent<RedriveForm>,
) -> Result<Response, Refusal> {
    confirmed(&form.confirm, &id.to_string())?;
    let signed = Warrant { actor: form.actor, reason: form.reason }.signed(&visitor.caller)?;
    let new = desk.database.act(async |client| operator::redrive(client, id, signed.given()).await).await?;
    Ok(Redirect::to(&format!("/outboxes/{}", new.outbox_id)).into_response())
}

pub(super) async fn resolve(
    State(desk): State<Desk>,
    visitor: Visitor,
    OutboxInPath(id): OutboxInPath,
    Sent(form): Sent<ResolveForm>,
) -> Result<Response, Refusal> {
    confirmed(&form.confirm, &id.to_string())?;
    let signed = Warrant { actor: form.actor, reason: form.reason }.signed(&visitor.caller)?;
    let resolve = async |client: &_| operator::resolve(client, id, form.resolution, signed.given()).await;
    desk.database.act(resolve).await?;
    Ok(Redirect::to(&format!("/outboxes/{id}")).into_response())
}

/// What happened and what people did, in the order of time, each with how long after the one before.
fn steps(events: &[Event], operations: &[Operation], unknown: bool) -> Vec<Step> {
    // The log of operations says more about a redrive than the event.
    let told = events.iter().filter(|event| event.event != EventKind::Redriven);
    let mut steps: Vec<Step> =
        told.map(|event| happened(event, unknown)).chain(operations.iter().map(done)).collect();
    steps.sort_by_key(|step| step.when);
    for place in 1..steps.len() {
        steps[place].after = span(steps[place].when.duration_since(steps[place - 1].when));
    }
    steps
}

fn step(when: Timestamp, tone: &'static str, what: String, more: String) -> Step {
    Step { when, at: Moment::of(when), after: String::new(), tone, what, more }
}

fn happened(event: &Event, unknown: bool) -> Step {
    let attempt = event.attempt_no.unwrap_or_default();
    let worker = event.worker_id.as_deref().unwrap_or("somebody");
    let mut more: Vec<String> = Vec::new();
    let (tone, what) = match event.event {
        EventKind::Enqueued => ("wait", "Enqueued".to_owned()),
        EventKind::LeaseClaimed => ("wait", format!("Attempt {attempt}: taken by {worker}")),
        EventKind::LeaseExpiredRepaired => (
            "bad",
            format!("Attempt {attempt}: its relayer was not heard of again, and nobody knows whether it was paid"),
        ),
        EventKind::AttemptCompleted => match event.state {
            Some(AttemptState::Dispatched) => ("ok", format!("Attempt {attempt}: the rail took it")),
            Some(AttemptState::Failed) if unknown => {
                ("bad", format!("Attempt {attempt}: nobody knows how it ended"))
            }
            Some(AttemptState::Failed) => ("bad", format!("Attempt {attempt}: failed for good")),
            Some(AttemptState::Retryable | AttemptState::ZombieRequeue) | None => {
                ("again", format!("Attempt {attempt}: did not work, and is tried again"))
            }
        },
        EventKind::Redriven => ("again", "Tried again as another outbox".to_owned()),
    };
    more.extend([&event.error_code, &event.error_message].into_iter().flatten().cloned());
    more.extend(event.rail_reference.as_ref().map(|reference| format!("reference {reference}")));
    more.extend(event.rail_code.as_ref().map(|code| format!("the rail's code {code}")));
    more.extend(event.latency_ms.map(|length| format!("the rail took {}", millis(Some(i64::from(length))))));
    step(event.occurred_at, tone, what, more.join("; "))
}

fn done(operation: &Operation) -> Step {
    let (tone, what) = match (operation.operation, operation.resolution) {
        (OperationKind::Redrive, _) => ("again", "A person tried it again".to_owned()),
        (_, Some(Resolution::Paid)) => ("ok", "A person found out: PAID".to_owned()),
        (_, Some(resolution)) => ("wait", format!("A person recorded: {resolution}")),
        (other, None) => ("wait", other.to_string()),
    };
    step(operation.created_at, tone, what, format!("{}: {}", operation.actor, operation.reason))
}
