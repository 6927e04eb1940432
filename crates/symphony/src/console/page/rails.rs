//! The rails, their policies, and what may be done to them.

use askama::Template;
use axum::extract::State;
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, post};
use serde::Deserialize;
use symphony_outbox::payment::{self, Change, OnUnknown, RailPolicy, operator};

use super::form::{Sent, confirmed};
use super::time::{Moment, seconds};
use super::{Frame, Refusal, in_path, shown};
use crate::console::Desk;
use crate::console::api::{self, RailAction, Warrant};
use crate::console::given::NameInPath;
use crate::console::problem::Problem;
use crate::console::session::Visitor;

#[derive(Template)]
#[template(path = "rails.html")]
struct Page {
    frame: Frame,
    rails: Vec<Rail>,
    /// The names of those that were retired.
    retired: String,
}

struct Rail {
    name: String,
    path: String,
    paused: bool,
    now: &'static str,
    tone: &'static str,
    max_attempts: i32,
    backoff: String,
    backoff_base: i32,
    backoff_cap: i32,
    order: &'static str,
    cap: String,
    cap_value: String,
    on_unknown: &'static str,
    policies: Vec<(&'static str, bool)>,
    memory: String,
    changed: String,
}

impl Rail {
    fn of(rail: payment::Rail) -> Self {
        Self {
            path: format!("/rails/{}", in_path(&rail.rail_type)),
            name: rail.rail_type,
            paused: rail.paused,
            now: if rail.paused { "PAUSED" } else { "RUNNING" },
            tone: if rail.paused { "again" } else { "ok" },
            max_attempts: rail.max_attempts,
            backoff: format!(
                "{}, doubled up to {}",
                seconds(f64::from(rail.backoff_base_seconds)),
                seconds(f64::from(rail.backoff_cap_seconds))
            ),
            backoff_base: rail.backoff_base_seconds,
            backoff_cap: rail.backoff_cap_seconds,
            order: if rail.ordered { "strict within a participant" } else { "none" },
            cap: rail.max_in_flight.map_or_else(|| "no cap".to_owned(), |cap| cap.to_string()),
            cap_value: rail.max_in_flight.map(|cap| cap.to_string()).unwrap_or_default(),
            on_unknown: rail.on_unknown.as_str(),
            policies: OnUnknown::ALL.iter().map(|word| (word.as_str(), *word == rail.on_unknown)).collect(),
            memory: rail.key_memory_seconds.map_or_else(|| "ever".to_owned(), |time| seconds(f64::from(time))),
            changed: format!("{} by {}", Moment::of(rail.updated_at).text, rail.updated_by),
        }
    }
}

/// What the form of a policy brings.
#[derive(Deserialize)]
pub(super) struct PolicyForm {
    max_attempts: u32,
    backoff_base_seconds: u32,
    backoff_cap_seconds: u32,
    #[serde(default)]
    max_in_flight: String,
    on_unknown: OnUnknown,
    #[serde(default)]
    actor: String,
    reason: String,
    confirm: String,
}

/// What the form of a new rail brings. Its policy starts from the defaults.
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

/// What the other forms bring.
#[derive(Deserialize)]
pub(super) struct Signature {
    #[serde(default)]
    pub(super) actor: String,
    pub(super) reason: String,
}

impl From<Signature> for Warrant {
    fn from(signature: Signature) -> Self {
        Self { actor: signature.actor, reason: signature.reason }
    }
}

pub(super) async fn page(State(desk): State<Desk>, visitor: Visitor) -> Result<Response, Refusal> {
    let (registered, retired): (Vec<_>, Vec<_>) =
        api::rails(&desk, &visitor.caller).await?.into_iter().partition(payment::Rail::is_registered);
    let rails = registered.into_iter().map(Rail::of).collect();
    let retired = retired.into_iter().map(|rail| rail.rail_type).collect::<Vec<_>>().join(", ");
    Ok(shown(&Page { frame: Frame::new(&desk, &visitor, "/rails"), rails, retired }))
}

/// What a form does that only needs a reason.
pub(super) fn doing(action: RailAction) -> MethodRouter<Desk> {
    post(
        move |State(desk): State<Desk>,
              visitor: Visitor,
              NameInPath(name): NameInPath,
              Sent(signature): Sent<Signature>| async move {
            action.carry_out(&desk, &visitor.caller, &name, signature.into()).await?;
            Ok::<_, Refusal>(Redirect::to("/rails"))
        },
    )
}

pub(super) async fn register(
    State(desk): State<Desk>,
    visitor: Visitor,
    Sent(form): Sent<RegisterForm>,
) -> Result<Response, Refusal> {
    confirmed(&form.confirm, &form.name)?;
    // A box that is not ticked is not sent.
    let policy = RailPolicy { ordered: Some(!form.ordered.is_empty()), ..RailPolicy::default() };
    let signed = Warrant { actor: form.actor, reason: form.reason }.signed(&visitor.caller)?;
    let name = &form.name;
    desk.database.act(async |client| operator::register_rail(client, name, &policy, signed.given()).await).await?;
    Ok(Redirect::to("/rails").into_response())
}

pub(super) async fn policy(
    State(desk): State<Desk>,
    visitor: Visitor,
    NameInPath(name): NameInPath,
    Sent(form): Sent<PolicyForm>,
) -> Result<Response, Refusal> {
    confirmed(&form.confirm, &name)?;
    let max_in_flight = match form.max_in_flight.trim() {
        "" => Change::Clear,
        cap => {
            Change::Set(cap.parse().map_err(|_| Problem::bad("in flight at most: write a number, or nothing"))?)
        }
    };
    let policy = RailPolicy {
        max_attempts: Some(form.max_attempts),
        backoff_base_seconds: Some(form.backoff_base_seconds),
        backoff_cap_seconds: Some(form.backoff_cap_seconds),
        max_in_flight,
        on_unknown: Some(form.on_unknown),
        ..RailPolicy::default()
    };
    let signed = Warrant { actor: form.actor, reason: form.reason }.signed(&visitor.caller)?;
    desk.database.act(async |client| operator::set_rail(client, &name, &policy, signed.given()).await).await?;
    Ok(Redirect::to("/rails").into_response())
}
