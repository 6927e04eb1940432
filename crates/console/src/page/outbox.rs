//! The page of one payment: its state, its timeline, and the forms to cancel, resolve, redrive or erase it.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use jiff::Timestamp;
use serde::Deserialize;
use symphony_db::OutboxId;
use symphony_db::payment::reader::{Operation, TimelineEvent};
use symphony_db::payment::{EventKind, OperationKind, OutboxState, Payload, Resolution, operator};

use super::form::{CsrfForm, check_confirmation};
use super::texts::{self, Summary};
use super::time::{Moment, span};
use super::{Layout, PageError, PayloadPage, percent_encode, render};
use crate::ConsoleState;
use crate::api::{self, AuditContext, ExportFormat};
use crate::extract::{PathId, QueryParams};
use crate::problem::Problem;
use crate::session::Visitor;

#[derive(Template)]
#[template(path = "outbox.html")]
struct Page {
    layout: Layout,
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
    may_replace: bool,
    may_cancel: bool,
    erased: Option<String>,
    may_erase: bool,
}

/// One entry of the timeline.
struct Step {
    when: Timestamp,
    at: Moment,
    after: String,
    tone: &'static str,
    title: String,
    details: String,
}

pub(super) async fn page(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<OutboxId>,
) -> Result<Response, PageError> {
    let api::OutboxTimeline { outbox, events, operations } =
        api::outbox_timeline(&console, &visitor.caller, id).await?;
    let Summary { tone, headline, next_step, link } = texts::outbox_summary(&outbox);
    let cancelled = texts::is_cancelled(&outbox);
    let failed = outbox.state == OutboxState::Failed && outbox.redriven_as.is_none() && !cancelled;
    let leased = matches!(outbox.state, OutboxState::Leased | OutboxState::LeaseExpired);
    let invalid_payload = outbox.error_code.as_deref() == Some("INVALID_PAYLOAD");
    let unknown = outbox.outcome_unknown && outbox.resolution.is_none();
    let has_payload = outbox.payload_erased_at.is_none();
    Ok(render(&Page {
        layout: Layout::new(&console, &visitor, ""),
        id: outbox.outbox_id.to_string(),
        participant_path: format!("/participants/{}", percent_encode(&outbox.participant_id)),
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
        erased: erasure(&operations),
        may_erase: has_payload
            && (outbox.state == OutboxState::Dispatched || cancelled || failed && outbox.resolution.is_some()),
        // The database knows whether it may have been sent, and refuses it then.
        may_cancel: outbox.ended_at.is_none() && !leased && !outbox.outcome_unknown,
        may_replace: !outbox.outcome_unknown && (outbox.rail_code.is_some() || invalid_payload),
        unknown,
        may_resolve: failed && matches!(outbox.resolution, None | Some(Resolution::NotPaid)),
        not_paid: outbox.resolution.is_none(),
        skippable: outbox.resolution.is_none() && !outbox.outcome_unknown,
        may_redrive: failed
            && has_payload
            && match outbox.resolution {
                None => !outbox.outcome_unknown,
                Some(Resolution::NotPaid) => true,
                Some(Resolution::Paid | Resolution::Skipped) => false,
            },
    }))
}

pub(super) async fn payload(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<OutboxId>,
) -> Result<Response, PageError> {
    let payload = api::outbox_payload(&console, id).await?;
    let api::OutboxTimeline { outbox, operations, .. } =
        api::outbox_timeline(&console, &visitor.caller, id).await?;
    let has_payload = outbox.payload_erased_at.is_none();
    Ok(render(&PayloadPage {
        layout: Layout::new(&console, &visitor, ""),
        title: "Payload",
        notice: erasure(&operations),
        heading: "Payload for the rail",
        back_path: format!("/outboxes/{id}"),
        back_label: "Back to the outbox",
        request: if has_payload { (console.preview)(&outbox, &payload) } else { None },
        payload: payload.as_json().to_owned(),
    }))
}

/// The timeline as a file.
pub(super) async fn export(
    State(console): State<ConsoleState>,
    PathId(id): PathId<OutboxId>,
    QueryParams(ExportFormat { format }): QueryParams<ExportFormat>,
) -> Result<Response, PageError> {
    Ok(api::timeline_file(&console, id, format).await?)
}

/// The fields of the forms to cancel and to erase.
#[derive(Deserialize)]
pub(super) struct ConfirmedForm {
    #[serde(default)]
    actor: String,
    reason: String,
    confirm: String,
}

/// The fields of the form to redrive.
#[derive(Deserialize)]
pub(super) struct RedriveForm {
    #[serde(default)]
    actor: String,
    reason: String,
    confirm: String,
    #[serde(default)]
    idempotency_key: String,
    #[serde(default)]
    payload: String,
}

/// The fields of the resolve form.
#[derive(Deserialize)]
pub(super) struct ResolveForm {
    resolution: Resolution,
    #[serde(default)]
    actor: String,
    reason: String,
    confirm: String,
}

pub(super) async fn redrive(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<OutboxId>,
    CsrfForm(form): CsrfForm<RedriveForm>,
) -> Result<Response, PageError> {
    check_confirmation(&form.confirm, &id.to_string())?;
    let given = |field: String| Some(field).filter(|field| !field.trim().is_empty());
    let payload = given(form.payload).map(|text| serde_json::from_str::<Payload>(&text)).transpose();
    let payload = payload.map_err(|_| Problem::bad_request("the new payload is not JSON: write an object"))?;
    let replacement = match (given(form.idempotency_key), payload) {
        (None, Some(_)) => {
            let detail = "a new payload needs a new key: a bank answers a known key with its first outcome";
            return Err(Problem::bad_request(detail).into());
        }
        (key, payload) => key.map(|idempotency_key| api::Replacement { idempotency_key, payload }),
    };
    let request = api::RedriveRequest { replacement, actor: form.actor, reason: form.reason };
    let new = request.run(&console, &visitor.caller, id).await?;
    Ok(Redirect::to(&format!("/outboxes/{}", new.outbox_id)).into_response())
}

pub(super) async fn cancel(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<OutboxId>,
    CsrfForm(form): CsrfForm<ConfirmedForm>,
) -> Result<Response, PageError> {
    check_confirmation(&form.confirm, &id.to_string())?;
    let audit = AuditContext { actor: form.actor, reason: form.reason };
    api::cancel_outbox(&console, &visitor.caller, id, audit).await?;
    Ok(Redirect::to(&format!("/outboxes/{id}")).into_response())
}

pub(super) async fn resolve(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<OutboxId>,
    CsrfForm(form): CsrfForm<ResolveForm>,
) -> Result<Response, PageError> {
    check_confirmation(&form.confirm, &id.to_string())?;
    let audit = AuditContext { actor: form.actor, reason: form.reason }.for_caller(&visitor.caller)?;
    let resolve = async |client: &_| operator::resolve(client, id, form.resolution, audit.as_db()).await;
    console.database.act(resolve).await?;
    Ok(Redirect::to(&format!("/outboxes/{id}")).into_response())
}

pub(super) async fn erase(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathId(id): PathId<OutboxId>,
    CsrfForm(form): CsrfForm<ConfirmedForm>,
) -> Result<Response, PageError> {
    check_confirmation(&form.confirm, &id.to_string())?;
    let audit = AuditContext { actor: form.actor, reason: form.reason }.for_caller(&visitor.caller)?;
    console.database.act(async |client| operator::erase(client, id, audit.as_db()).await).await?;
    Ok(Redirect::to(&format!("/outboxes/{id}")).into_response())
}

/// When the payload was erased first, by whom and why; none if it was not.
fn erasure(operations: &[Operation]) -> Option<String> {
    let first = operations.iter().find(|operation| operation.operation == OperationKind::Erase)?;
    Some(format!("Payload erased on {} by {}: {}", Moment::of(first.created_at).text, first.actor, first.reason))
}

/// The events of an outbox and the operators' actions on it, oldest first, each with the time since the one before.
fn steps(events: &[TimelineEvent], operations: &[Operation], unknown: bool) -> Vec<Step> {
    // The audit log says more about these than the events do.
    let events = events.iter().filter(|event| !matches!(event.event, EventKind::Cancelled | EventKind::Redriven));
    let events = events
        .map(|event| step(event.occurred_at, texts::event_title(event, unknown), texts::event_details(event)));
    let operations = operations.iter().map(|operation| {
        let details = format!("{}: {}", operation.actor, operation.reason);
        step(operation.created_at, texts::operation_title(operation), details)
    });
    let mut steps: Vec<Step> = events.chain(operations).collect();
    steps.sort_by_key(|step| step.when);
    for index in 1..steps.len() {
        steps[index].after = span(steps[index].when.duration_since(steps[index - 1].when));
    }
    steps
}

fn step(when: Timestamp, (tone, title): (&'static str, String), details: String) -> Step {
    Step { when, at: Moment::of(when), after: String::new(), tone, title, details }
}
