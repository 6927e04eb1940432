//! The dashboard: pages that the server renders and that work without scripts, one page per file.
//!
//! Where the words of a page come from: fixed labels are in `templates/`; sentences that depend on the state of a row
//! are in [`texts`].
//!
//! # Layout
//! - [`texts`]: headlines, next steps and timeline entries
//! - [`time`]: times, durations and numbers as text
//! - [`outbox_row`]: an outbox as a row of a table
//! - [`form`]: forms with a CSRF token
//! - the pages: [`overview`], [`rails`], [`search`], [`outbox`], [`dead_letters`], [`operations`], [`participants`],
//!   [`events`], [`metadata`], [`login`]

mod dead_letters;
mod events;
mod form;
mod login;
mod metadata;
mod operations;
mod outbox;
mod outbox_row;
mod overview;
mod participants;
mod rails;
mod search;
mod texts;
mod time;

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get, post};

use super::access::{FOREIGN_ORIGIN, Scope, names_loopback, same_origin};
use super::api::RailAction;
use super::extract::buffer_body;
use super::problem::Problem;
use super::session::Visitor;
use super::{Console, ConsoleState, live};
use crate::sanitize::plain_layout;
use crate::server::head::MAX_BODY_BYTES;
use symphony_db::connect::percent_encode;

/// A page, or the target of a form.
struct Route {
    path: &'static str,
    scope: Scope,
    handler: MethodRouter<ConsoleState>,
}

fn routes() -> Vec<Route> {
    let route = |path, scope, handler| Route { path, scope, handler };
    let (read, act, audit) = (Scope::Read, Scope::Operate, Scope::Audit);
    vec![
        route("/", read, get(overview::page)),
        route("/rails", read, get(rails::page)),
        route("/rails/{rail_type}/pause", act, rails::action_handler(RailAction::Pause)),
        route("/rails/{rail_type}/resume", act, rails::action_handler(RailAction::Resume)),
        route("/rails/register", act, post(rails::register)),
        route("/rails/{rail_type}/retire", act, rails::action_handler(RailAction::Retire)),
        route("/rails/{rail_type}/repair", act, rails::action_handler(RailAction::Repair)),
        route("/rails/{rail_type}/policy", act, post(rails::policy)),
        route("/search", read, get(search::page)),
        route("/outboxes/{outbox_id}", read, get(outbox::page)),
        route("/outboxes/{outbox_id}/payload", audit, get(outbox::payload)),
        route("/outboxes/{outbox_id}/export", audit, get(outbox::export)),
        route("/outboxes/{outbox_id}/redrive", act, post(outbox::redrive)),
        route("/outboxes/{outbox_id}/cancel", act, post(outbox::cancel)),
        route("/outboxes/{outbox_id}/resolve", act, post(outbox::resolve)),
        route("/outboxes/{outbox_id}/erase", act, post(outbox::erase)),
        route("/dead-letters", read, get(dead_letters::page)),
        route("/dead-letters/redrive", act, post(dead_letters::redrive)),
        route("/operations", audit, get(operations::page)),
        route("/operations/export", audit, get(operations::export)),
        route("/participants", read, get(participants::list)),
        route("/participants/{participant_id}", read, get(participants::one)),
        route("/events", read, get(events::list)),
        route("/events/{event_id}", read, get(events::one)),
        route("/events/{event_id}/payload", audit, get(events::payload)),
        route("/metadata", read, get(metadata::list)),
        route("/metadata/{entry_id}", read, get(metadata::one)),
        route("/metadata/{entry_id}/payload", audit, get(metadata::payload)),
        route("/logout", read, post(login::sign_out)),
        route("/live", read, get(live::watch)),
    ]
}

/// The pages, each behind its scope, the sign-in page and the assets.
pub(crate) fn router(console: &ConsoleState) -> Router<ConsoleState> {
    let mut router = Router::new()
        .route("/login", get(login::page).post(login::sign_in))
        .route("/assets/console.css", get(async || asset("text/css", crate::STYLE)))
        .route("/assets/console.js", get(async || asset("text/javascript", include_str!("../assets/console.js"))));
    for route in routes() {
        let guard = middleware::from_fn_with_state((Arc::clone(console), route.scope), admit);
        router = router.route(route.path, route.handler.layer(guard));
    }
    router
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=300")], text).into_response()
}

/// Admits a request to its page, or redirects to the sign-in page.
async fn admit(State((console, scope)): State<(ConsoleState, Scope)>, request: Request, next: Next) -> Response {
    let visitor = match visitor(&console, request.headers()) {
        Ok(Some(visitor)) => visitor,
        Ok(None) => {
            let next_path = if request.method() == Method::GET { request.uri().path() } else { "/" };
            return Redirect::to(&format!("/login?next={}", percent_encode(next_path))).into_response();
        }
        Err(problem) => return PageError::new(None, problem).into_response(),
    };
    let refused = if !visitor.caller.may(scope) {
        Some(format!("your token has no scope {:?}", scope.as_str()))
    } else if request.method() != Method::GET && !same_origin(request.headers()) {
        Some(FOREIGN_ORIGIN.to_owned())
    } else {
        None
    };
    if let Some(detail) = refused {
        let layout = Layout::new(&console, &visitor, "");
        return PageError::new(Some(layout), Problem::new(StatusCode::FORBIDDEN, detail)).into_response();
    }
    let mut request = match buffer_body(request, MAX_BODY_BYTES).await {
        Ok(request) => request,
        Err(problem) => {
            let layout = Layout::new(&console, &visitor, "");
            return PageError::new(Some(layout), problem).into_response();
        }
    };
    let Some(_permit) = console.requests.try_acquire(&visitor.caller) else {
        return Problem::too_many_requests().into_response();
    };
    request.extensions_mut().insert(visitor);
    next.run(request).await
}

/// The visitor of a page; none if they have to sign in first.
fn visitor(console: &Console, headers: &HeaderMap) -> Result<Option<Visitor>, Problem> {
    if !console.access.is_open() {
        return Ok(console.sessions.visitor(headers));
    }
    if !names_loopback(headers) {
        return Err(Problem::not_loopback());
    }
    let caller = console.access.caller(headers);
    Ok(caller.map(|caller| Visitor { caller, csrf: console.csrf.clone() }))
}

/// What every page has around its content: navigation, user and time.
pub(crate) struct Layout {
    /// The path of the page that the navigation marks as current.
    current: &'static str,
    has_navigation: bool,
    user: String,
    csrf: String,
    may_act: bool,
    may_audit: bool,
    signed_in: bool,
    now: String,
}

impl Layout {
    fn new(console: &Console, visitor: &Visitor, current: &'static str) -> Self {
        let caller = &visitor.caller;
        Self {
            current,
            has_navigation: true,
            user: caller.name.clone().unwrap_or_else(|| "local user".to_owned()),
            csrf: visitor.csrf.clone(),
            may_act: caller.may(Scope::Operate) && console.database.may_act(),
            may_audit: caller.may(Scope::Audit),
            signed_in: caller.name.is_some(),
            now: time::clock(jiff::Timestamp::now()),
        }
    }

    /// The layout for a visitor who has not signed in.
    fn signed_out() -> Self {
        Self {
            current: "",
            has_navigation: false,
            user: String::new(),
            csrf: String::new(),
            may_act: false,
            may_audit: false,
            signed_in: false,
            now: time::clock(jiff::Timestamp::now()),
        }
    }
}

/// Renders a template.
fn render(page: &impl Template) -> Response {
    match page.render() {
        // The templates contain no such characters themselves, so all of them come from stored text.
        Ok(html) => Html(plain_layout(&html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            let detail = "the page could not be rendered; the log of this process has the error";
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, detail).into_response()
        }
    }
}

/// The payload of an outbox row of any lane.
#[derive(Template)]
#[template(path = "payload.html")]
struct PayloadPage {
    layout: Layout,
    title: &'static str,
    heading: &'static str,
    back_path: String,
    back_label: &'static str,
    /// What a reader must know about it, such as its erasure.
    notice: Option<String>,
    payload: String,
    /// What the rail sends for it: the request, or why it cannot be sent.
    request: Option<Result<String, String>>,
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    layout: Layout,
    title: &'static str,
    detail: String,
    changed_nothing: bool,
}

/// A problem that is rendered as a page.
pub(crate) struct PageError {
    layout: Option<Layout>,
    problem: Problem,
}

impl PageError {
    fn new(layout: Option<Layout>, problem: Problem) -> Self {
        Self { layout, problem }
    }
}

impl From<Problem> for PageError {
    fn from(problem: Problem) -> Self {
        Self { layout: None, problem }
    }
}

impl IntoResponse for PageError {
    fn into_response(self) -> Response {
        let status = self.problem.status();
        let page = ProblemPage {
            layout: self.layout.unwrap_or_else(Layout::signed_out),
            title: self.problem.title(),
            detail: self.problem.detail().to_owned(),
            changed_nothing: status.is_client_error(),
        };
        let mut response = render(&page);
        *response.status_mut() = status;
        response
    }
}

/// The value of a form field; none if it is blank.
fn non_empty(text: &str) -> Option<String> {
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The time in a form field; none if it is blank.
fn parse_time(field: &str, text: &str) -> Result<Option<jiff::Timestamp>, Problem> {
    let time = non_empty(text).map(|text| text.parse()).transpose();
    time.map_err(|_| {
        Problem::bad_request(format!("{field} is not a time: write it with its zone, such as 2026-05-03T09:30Z"))
    })
}

/// A path with a query of the fields that are not empty.
fn with_query(path: &str, fields: &[(&str, &str)]) -> String {
    let fields = fields.iter().filter(|(_, value)| !value.is_empty());
    let fields: Vec<_> = fields.map(|(name, value)| format!("{name}={}", percent_encode(value))).collect();
    if fields.is_empty() { path.to_owned() } else { format!("{path}?{}", fields.join("&")) }
}
