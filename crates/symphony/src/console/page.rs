//! The dashboard: pages rendered here that work without a script, one page a file.
//!
//! # Layout
//! - [`time`]: moments and spans as people read them
//! - [`row`]: an outbox as a line of a table
//! - [`verdict`]: what to say first about an outbox, and what to do next
//! - [`form`]: what a form of ours brings back
//! - the pages: [`overview`], [`rails`], [`search`], [`outbox`], [`dead_letters`], [`operations`], [`participants`],
//!   [`events`], [`metadata`], [`login`]

mod dead_letters;
mod events;
mod form;
mod login;
mod metadata;
mod operations;
mod outbox;
mod overview;
mod participants;
mod rails;
mod row;
mod search;
mod time;
mod verdict;

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{Html, IntoResponse, Redirect, Response};
use axum::routing::{MethodRouter, get, post};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::access::{Scope, names_loopback, same_origin};
use super::api::RailAction;
use super::given::with_body_read;
use super::problem::Problem;
use super::session::Visitor;
use super::{Console, Desk, live};
use crate::output::plain_layout;
use crate::server::head::MAX_BODY_BYTES;

/// What may stand in a path as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A page, or what a form leads to.
struct Sheet {
    path: &'static str,
    scope: Scope,
    handler: MethodRouter<Desk>,
}

fn sheets() -> Vec<Sheet> {
    let sheet = |path, scope, handler| Sheet { path, scope, handler };
    let (read, act, audit) = (Scope::Read, Scope::Operate, Scope::Audit);
    vec![
        sheet("/", read, get(overview::page)),
        sheet("/rails", read, get(rails::page)),
        sheet("/rails/{rail_type}/pause", act, rails::doing(RailAction::Pause)),
        sheet("/rails/{rail_type}/resume", act, rails::doing(RailAction::Resume)),
        sheet("/rails/register", act, post(rails::register)),
        sheet("/rails/{rail_type}/retire", act, rails::doing(RailAction::Retire)),
        sheet("/rails/{rail_type}/repair", act, rails::doing(RailAction::Repair)),
        sheet("/rails/{rail_type}/policy", act, post(rails::policy)),
        sheet("/search", read, get(search::page)),
        sheet("/outboxes/{outbox_id}", read, get(outbox::page)),
        sheet("/outboxes/{outbox_id}/payload", audit, get(outbox::payload)),
        sheet("/outboxes/{outbox_id}/export", audit, get(outbox::export)),
        sheet("/outboxes/{outbox_id}/redrive", act, post(outbox::redrive)),
        sheet("/outboxes/{outbox_id}/resolve", act, post(outbox::resolve)),
        sheet("/dead-letters", read, get(dead_letters::page)),
        sheet("/dead-letters/redrive", act, post(dead_letters::redrive)),
        sheet("/operations", audit, get(operations::page)),
        sheet("/operations/export", audit, get(operations::export)),
        sheet("/participants", read, get(participants::list)),
        sheet("/participants/{participant_id}", read, get(participants::stream)),
        sheet("/events", read, get(events::list)),
        sheet("/events/{event_id}", read, get(events::one)),
        sheet("/events/{event_id}/payload", audit, get(events::payload)),
        sheet("/metadata", read, get(metadata::list)),
        sheet("/metadata/{entry_id}", read, get(metadata::one)),
        sheet("/metadata/{entry_id}/payload", audit, get(metadata::payload)),
        sheet("/logout", read, post(login::leave)),
        sheet("/live", read, get(live::watch)),
    ]
}

/// The pages, each behind its scope, and what stands before them.
pub(crate) fn router(desk: &Desk) -> Router<Desk> {
    let mut router = Router::new()
        .route("/login", get(login::page).post(login::enter))
        .route("/assets/console.css", get(async || asset("text/css", include_str!("../../assets/console.css"))))
        .route(
            "/assets/console.js",
            get(async || asset("text/javascript", include_str!("../../assets/console.js"))),
        );
    for sheet in sheets() {
        let guard = middleware::from_fn_with_state((Arc::clone(desk), sheet.scope), admit);
        router = router.route(sheet.path, sheet.handler.layer(guard));
    }
    router
}

fn asset(kind: &'static str, text: &'static str) -> Response {
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, "max-age=300")], text).into_response()
}

/// Lets a request through to its page, or to where one signs in.
async fn admit(State((desk, scope)): State<(Desk, Scope)>, request: Request, next: Next) -> Response {
    let visitor = match visitor(&desk, request.headers()) {
        Ok(Some(visitor)) => visitor,
        Ok(None) => {
            let there = if request.method() == Method::GET { request.uri().path() } else { "/" };
            return Redirect::to(&format!("/login?next={}", in_path(there))).into_response();
        }
        Err(problem) => return Refusal::of(None, problem).into_response(),
    };
    let refused = if !visitor.caller.may(scope) {
        Some(format!("your token has no scope {:?}", scope.word()))
    } else if request.method() != Method::GET && !same_origin(request.headers()) {
        Some("pages of other sites may not act here".to_owned())
    } else {
        None
    };
    if let Some(detail) = refused {
        let frame = Frame::new(&desk, &visitor, "");
        return Refusal::of(Some(frame), Problem::new(StatusCode::FORBIDDEN, detail)).into_response();
    }
    let mut request = match with_body_read(request, MAX_BODY_BYTES).await {
        Ok(request) => request,
        Err(problem) => {
            let frame = Frame::new(&desk, &visitor, "");
            return Refusal::of(Some(frame), problem).into_response();
        }
    };
    let Some(_place) = desk.places.take(&visitor.caller) else {
        return Problem::busy("too many requests at a time").into_response();
    };
    request.extensions_mut().insert(visitor);
    next.run(request).await
}

/// Who looks; nobody where they have to sign in first.
fn visitor(desk: &Console, headers: &HeaderMap) -> Result<Option<Visitor>, Problem> {
    if !desk.access.is_open() {
        return Ok(desk.sessions.visitor(headers));
    }
    if !names_loopback(headers) {
        let detail = "without tokens the console answers on localhost, 127.0.0.1 and [::1] alone";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    let caller = desk.access.caller(headers);
    Ok(caller.map(|caller| Visitor { caller, csrf: desk.csrf.clone() }))
}

/// What is around every page.
pub(crate) struct Frame {
    here: &'static str,
    /// Whether somebody is inside, and may see where else there is to go.
    inside: bool,
    who: String,
    csrf: String,
    may_act: bool,
    may_audit: bool,
    signed_in: bool,
    now: String,
}

impl Frame {
    fn new(desk: &Console, visitor: &Visitor, here: &'static str) -> Self {
        let caller = &visitor.caller;
        Self {
            here,
            inside: true,
            who: caller.name.clone().unwrap_or_else(|| "on this machine".to_owned()),
            csrf: visitor.csrf.clone(),
            may_act: caller.may(Scope::Operate) && desk.database.may_act(),
            may_audit: caller.may(Scope::Audit),
            signed_in: caller.name.is_some(),
            now: time::clock(jiff::Timestamp::now()),
        }
    }

    /// Before anybody signed in.
    fn outside() -> Self {
        Self {
            here: "",
            inside: false,
            who: String::new(),
            csrf: String::new(),
            may_act: false,
            may_audit: false,
            signed_in: false,
            now: time::clock(jiff::Timestamp::now()),
        }
    }

    fn pages(&self) -> Vec<(&'static str, &'static str)> {
        let mut pages = vec![
            ("/", "Overview"),
            ("/dead-letters", "Dead letters"),
            ("/search", "Search"),
            ("/rails", "Rails"),
            ("/participants", "Participants"),
            ("/events", "Events"),
            ("/metadata", "Metadata"),
        ];
        if self.may_audit {
            pages.push(("/operations", "Operations"));
        }
        pages
    }
}

/// A page of a template.
fn shown(page: &impl Template) -> Response {
    match page.render() {
        // The templates have no such characters themselves, so all of them are in text of others.
        Ok(html) => Html(plain_layout(&html)).into_response(),
        Err(error) => {
            tracing::error!(%error, "a page could not be rendered");
            Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "the page could not be rendered").into_response()
        }
    }
}

#[derive(Template)]
#[template(path = "problem.html")]
struct ProblemPage {
    frame: Frame,
    title: &'static str,
    detail: String,
    changed_nothing: bool,
}

/// A problem as people read it.
pub(crate) struct Refusal {
    frame: Option<Frame>,
    problem: Problem,
}

impl Refusal {
    fn of(frame: Option<Frame>, problem: Problem) -> Self {
        Self { frame, problem }
    }
}

impl From<Problem> for Refusal {
    fn from(problem: Problem) -> Self {
        Self { frame: None, problem }
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let status = self.problem.status();
        let page = ProblemPage {
            frame: self.frame.unwrap_or_else(Frame::outside),
            title: self.problem.title(),
            detail: self.problem.detail().to_owned(),
            changed_nothing: status.is_client_error(),
        };
        let mut response = shown(&page);
        *response.status_mut() = status;
        response
    }
}

/// What a field of a form asks; an empty one asks nothing.
fn some(text: &str) -> Option<String> {
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// A moment that a field names.
fn moment(what: &str, text: &str) -> Result<Option<jiff::Timestamp>, Problem> {
    let moment = some(text).map(|text| text.parse()).transpose();
    moment.map_err(|_| Problem::bad(format!("{what}: write a time with its zone, as 2026-05-03T09:30Z")))
}

/// A path with a query of the fields that ask something.
fn link(path: &str, fields: &[(&str, &str)]) -> String {
    let asked = fields.iter().filter(|(_, value)| !value.is_empty());
    let asked: Vec<_> = asked.map(|(name, value)| format!("{name}={}", in_path(value))).collect();
    if asked.is_empty() { path.to_owned() } else { format!("{path}?{}", asked.join("&")) }
}

/// A text as part of a path.
fn in_path(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}
