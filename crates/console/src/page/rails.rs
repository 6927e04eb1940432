//! The rails page: policies, and the forms to pause, repair, retire, change and register.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, post};
use serde::Deserialize;
use symphony_db::BatchSize;
use symphony_db::payment::reader::{self, HeldStream};
use symphony_db::payment::{self, Change, OnEpochChange, OnFailure, OnUnknown, RailPolicy, operator};

use super::form::{CsrfForm, check_confirmation};
use super::time::{Moment, seconds};
use super::{Layout, PageError, percent_encode, render};
use crate::ConsoleState;
use crate::api::{self, AuditContext, RailAction};
use crate::extract::PathName;
use crate::problem::Problem;
use crate::session::Visitor;

/// How many failures that hold streams are listed for each rail.
const MAX_HOLDING_FAILURES: usize = 20;

#[derive(Template)]
#[template(path = "rails.html")]
struct Page {
    layout: Layout,
    rails: Vec<Rail>,
    /// The names of retired rails.
    retired: String,
}

/// A failure that holds the later payments of its participant.
struct HoldingFailure {
    outbox: String,
    participant: String,
}

struct Rail {
    name: String,
    path: String,
    paused: bool,
    state: &'static str,
    tone: &'static str,
    /// Since which epoch it is held; empty if it is not.
    held: String,
    max_attempts: i32,
    backoff: String,
    backoff_base: i32,
    backoff_cap: i32,
    order: &'static str,
    in_flight_limit: String,
    in_flight_value: String,
    rate_limit: String,
    rate_value: String,
    on_unknown: &'static str,
    on_unknown_options: Vec<(&'static str, bool)>,
    on_epoch_change: &'static str,
    on_epoch_change_options: Vec<(&'static str, bool)>,
    /// Empty for a rail without order.
    on_failure: &'static str,
    on_failure_options: Vec<(&'static str, bool)>,
    outcomes: &'static str,
    publishes_outcomes: bool,
    /// The failures that hold streams: the oldest ones.
    holding_failures: Vec<HoldingFailure>,
    key_retention: String,
    confirm_every: String,
    confirm_every_seconds: i32,
    changed: String,
}

impl Rail {
    fn of(rail: payment::Rail, held: &[HeldStream]) -> Self {
        let holding_failures = held.iter().filter(|failure| failure.rail_type == rail.rail_type);
        let holding_failures = holding_failures.map(|failure| HoldingFailure {
            outbox: failure.outbox_id.to_string(),
            participant: failure.participant_id.clone(),
        });
        Self {
            holding_failures: holding_failures.take(MAX_HOLDING_FAILURES).collect(),
            path: format!("/rails/{}", percent_encode(&rail.rail_type)),
            name: rail.rail_type,
            paused: rail.paused,
            state: state(rail.paused, rail.held_since_epoch).0,
            tone: state(rail.paused, rail.held_since_epoch).1,
            held: rail.held_since_epoch.map(|epoch| format!("since epoch {epoch}")).unwrap_or_default(),
            max_attempts: rail.max_attempts,
            backoff: format!(
                "{}, doubled up to {}",
                seconds(f64::from(rail.backoff_base_seconds)),
                seconds(f64::from(rail.backoff_cap_seconds))
            ),
            backoff_base: rail.backoff_base_seconds,
            backoff_cap: rail.backoff_cap_seconds,
            order: if rail.ordered { "FIFO per participant" } else { "none" },
            in_flight_limit: rail.max_in_flight.map_or_else(|| "unlimited".to_owned(), |limit| limit.to_string()),
            in_flight_value: rail.max_in_flight.map(|limit| limit.to_string()).unwrap_or_default(),
            rate_limit: rail
                .max_per_second
                .map_or_else(|| "unlimited".to_owned(), |limit| format!("{limit} per second")),
            rate_value: rail.max_per_second.map(|limit| limit.to_string()).unwrap_or_default(),
            on_unknown: rail.on_unknown.as_str(),
            on_unknown_options: OnUnknown::ALL
                .iter()
                .map(|known| (known.as_str(), *known == rail.on_unknown))
                .collect(),
            on_epoch_change: rail.on_epoch_change.as_str(),
            on_epoch_change_options: OnEpochChange::ALL
                .iter()
                .map(|known| (known.as_str(), *known == rail.on_epoch_change))
                .collect(),
            on_failure: if rail.ordered { rail.on_failure.as_str() } else { "" },
            on_failure_options: OnFailure::ALL
                .iter()
                .map(|known| (known.as_str(), *known == rail.on_failure))
                .collect(),
            outcomes: if rail.publish_outcomes { "published as events" } else { "in the ledger only" },
            publishes_outcomes: rail.publish_outcomes,
            key_retention: rail
                .key_memory_seconds
                .map_or_else(|| "forever".to_owned(), |time| seconds(f64::from(time))),
            confirm_every: seconds(f64::from(rail.confirm_every_seconds)),
            confirm_every_seconds: rail.confirm_every_seconds,
            changed: format!("{} by {}", Moment::of(rail.updated_at).text, rail.updated_by),
        }
    }
}

/// The state of a rail and its CSS class.
pub(super) fn state(paused: bool, held_since_epoch: Option<i64>) -> (&'static str, &'static str) {
    match (paused, held_since_epoch) {
        (true, _) => ("PAUSED", "retry"),
        (false, Some(_)) => ("HELD", "bad"),
        (false, None) => ("RUNNING", "ok"),
    }
}

/// The fields of the policy form.
#[derive(Deserialize)]
pub(super) struct PolicyForm {
    max_attempts: u32,
    backoff_base_seconds: u32,
    backoff_cap_seconds: u32,
    #[serde(default)]
    max_in_flight: String,
    on_unknown: OnUnknown,
    #[serde(default)]
    on_epoch_change: Option<OnEpochChange>,
    #[serde(default)]
    publish_outcomes: Option<bool>,
    #[serde(default)]
    on_failure: Option<OnFailure>,
    /// None if the form does not have it.
    #[serde(default)]
    max_per_second: Option<String>,
    #[serde(default)]
    confirm_every_seconds: Option<u32>,
    #[serde(default)]
    actor: String,
    reason: String,
    confirm: String,
}

/// The fields of the register form. The policy starts from the defaults.
#[derive(Deserialize)]
pub(super) struct RegisterForm {
    name: String,
    #[serde(default)]
    ordered: String,
    #[serde(default)]
    actor: String,
    reason: String,
    confirm: String,
}

/// The fields of a form that needs only an operator and a reason.
#[derive(Deserialize)]
pub(super) struct AuditForm {
    #[serde(default)]
    pub(super) actor: String,
    pub(super) reason: String,
}

impl From<AuditForm> for AuditContext {
    fn from(form: AuditForm) -> Self {
        Self { actor: form.actor, reason: form.reason }
    }
}

pub(super) async fn page(State(console): State<ConsoleState>, visitor: Visitor) -> Result<Response, PageError> {
    let (registered, retired): (Vec<_>, Vec<_>) =
        api::rails(&console, &visitor.caller).await?.into_iter().partition(payment::Rail::is_registered);
    let held = console.database.read(async |client| reader::held_streams(client, BatchSize::MAX).await).await?;
    let rails = registered.into_iter().map(|rail| Rail::of(rail, &held)).collect();
    let retired = retired.into_iter().map(|rail| rail.rail_type).collect::<Vec<_>>().join(", ");
    Ok(render(&Page { layout: Layout::new(&console, &visitor, "/rails"), rails, retired }))
}

/// The handler of a form that needs only an operator and a reason.
pub(super) fn action_handler(action: RailAction) -> MethodRouter<ConsoleState> {
    post(
        move |State(console): State<ConsoleState>,
              visitor: Visitor,
              PathName(name): PathName,
              CsrfForm(form): CsrfForm<AuditForm>| async move {
            action.run(&console, &visitor.caller, &name, form.into()).await?;
            Ok::<_, PageError>(Redirect::to("/rails"))
        },
    )
}

pub(super) async fn register(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    CsrfForm(form): CsrfForm<RegisterForm>,
) -> Result<Response, PageError> {
    check_confirmation(&form.confirm, &form.name)?;
    // A browser does not send a checkbox that is not ticked.
    let policy = RailPolicy { ordered: Some(!form.ordered.is_empty()), ..RailPolicy::default() };
    let audit = AuditContext { actor: form.actor, reason: form.reason }.for_caller(&visitor.caller)?;
    let name = &form.name;
    console
        .database
        .act(async |client| operator::register_rail(client, name, &policy, audit.as_db()).await)
        .await?;
    Ok(Redirect::to("/rails").into_response())
}

pub(super) async fn policy(
    State(console): State<ConsoleState>,
    visitor: Visitor,
    PathName(name): PathName,
    CsrfForm(form): CsrfForm<PolicyForm>,
) -> Result<Response, PageError> {
    check_confirmation(&form.confirm, &name)?;
    let max_in_flight = limit("in-flight limit", &form.max_in_flight)?;
    let max_per_second =
        form.max_per_second.as_deref().map_or(Ok(Change::Keep), |text| limit("rate limit", text))?;
    let policy = RailPolicy {
        max_attempts: Some(form.max_attempts),
        backoff_base_seconds: Some(form.backoff_base_seconds),
        backoff_cap_seconds: Some(form.backoff_cap_seconds),
        max_in_flight,
        on_unknown: Some(form.on_unknown),
        on_epoch_change: form.on_epoch_change,
        publish_outcomes: form.publish_outcomes,
        on_failure: form.on_failure,
        max_per_second,
        confirm_every_seconds: form.confirm_every_seconds,
        ..RailPolicy::default()
    };
    let audit = AuditContext { actor: form.actor, reason: form.reason }.for_caller(&visitor.caller)?;
    console.database.act(async |client| operator::set_rail(client, &name, &policy, audit.as_db()).await).await?;
    Ok(Redirect::to("/rails").into_response())
}

/// A limit as a form sends it: empty for none.
fn limit(name: &str, text: &str) -> Result<Change<u32>, Problem> {
    match text.trim() {
        "" => Ok(Change::Clear),
        number => number.parse().map(Change::Set).map_err(|_| {
            Problem::bad_request(format!("{name} is not a number: write a number, or leave it empty for no limit"))
        }),
    }
}
