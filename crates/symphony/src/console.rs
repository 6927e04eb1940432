//! The console: an HTTP API and a dashboard for people on duty and for auditors, served by `symphony run`.
//!
//! It holds no rule. What may be seen and done is decided by the database, under two logins of the console's own: one that only reads, one that only
//! acts. What is decided here is who may ask, how much at a time, and how it is shown.
//!
//! # Layout
//! - [`access`]: tokens and scopes
//! - [`api`]: the endpoints, one resource a file
//! - [`chart`]: bars over time as SVG
//! - [`database`]: the two logins, and how little they may take
//! - [`endpoint`]: an endpoint with its scope, its schemas and its guard
//! - [`given`]: what a request gives, read within bounds
//! - [`live`]: tells open pages that something changed
//! - [`openapi`]: the description of the API, from the list of endpoints
//! - [`page`]: the dashboard, one page a file
//! - [`paging`]: pages and cursors
//! - [`quota`]: places that callers share
//! - [`problem`]: refusals as machines read them
//! - [`session`]: who is signed in to the dashboard

pub(crate) mod access;
pub(crate) mod api;
mod chart;
mod database;
mod endpoint;
mod given;
mod live;
mod openapi;
mod page;
mod paging;
pub(crate) mod problem;
mod quota;
mod session;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{self, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use symphony_outbox::connect::Target;

use crate::config;
use crate::failure::Failure;
use access::Access;
use database::Database;
use live::Live;
use problem::Problem;
use quota::Quota;
use session::Sessions;

/// Requests that are worked on at the same time, by all and for one token.
const PLACES: usize = 32;
const PLACES_PER_TOKEN: usize = 16;
/// How long an answer may take to begin, the request's own body included.
const PATIENCE: Duration = Duration::from_secs(20);
/// The roles of Symphony that each login of the console may hold. What goes beyond them is refused.
const FOR_READING: [&str; 2] = ["symphony_readonly", "symphony_auditor"];
const FOR_ACTING: [&str; 3] = ["symphony_operator", "symphony_readonly", "symphony_auditor"];
/// Nothing but what this process serves, no frames, no scripts in the page.
const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// What the handlers share.
pub(crate) struct Console {
    access: Access,
    database: Database,
    /// The relayer that serves it.
    worker: String,
    places: Arc<Quota>,
    exports: Arc<Quota>,
    sessions: Sessions,
    /// What forms hold where nobody signs in.
    csrf: String,
    live: Live,
}

/// The same, as it is handed around.
pub(crate) type Desk = Arc<Console>;

/// Where the console's logins lead.
pub(crate) struct Logins {
    read: Target,
    act: Option<Target>,
}

impl Logins {
    /// The addresses; none where the console is not wanted.
    pub(crate) fn parse(read: &str, act: &str) -> Result<Option<Self>, Failure> {
        let (read, act) = (read.trim(), act.trim());
        if read.is_empty() && act.is_empty() {
            return Ok(None);
        }
        if read.is_empty() {
            return Err(Failure::usage("console.act_url is set and console.read_url is not")
                .hint("the console reads under a login of its own: give it one that holds symphony_readonly"));
        }
        let named = |setting: &'static str| move |error| Failure::from(error).within(setting);
        let act = if act.is_empty() { None } else { Some(Target::parse(act).map_err(named("console.act_url"))?) };
        Ok(Some(Self { read: Target::parse(read).map_err(named("console.read_url"))?, act }))
    }

    /// Refuses logins that may too little or too much.
    pub(crate) async fn check(&self) -> Result<(), Failure> {
        database::check("console.read_url", &self.read, "symphony_readonly", &FOR_READING).await?;
        if let Some(act) = &self.act {
            database::check("console.act_url", act, "symphony_operator", &FOR_ACTING).await?;
        }
        Ok(())
    }
}

impl Console {
    /// Puts it together. Nothing is connected yet.
    pub(crate) fn build(
        settings: &config::Console,
        logins: &Logins,
        listener: Option<SocketAddr>,
        worker: &str,
    ) -> Result<Desk, Failure> {
        let on_loopback = listener.is_some_and(|address| address.ip().is_loopback());
        Ok(Arc::new(Self {
            access: Access::new(&settings.tokens, on_loopback)?,
            database: Database::new(&logins.read, logins.act.as_ref()),
            worker: worker.to_owned(),
            places: Quota::new(PLACES, PLACES_PER_TOKEN),
            exports: Quota::new(api::EXPORTS, api::EXPORTS_PER_TOKEN),
            sessions: Sessions::default(),
            csrf: session::random().map_err(|problem| Failure::no(problem.detail()))?,
            live: Live::new(),
        }))
    }

    /// Everything that it answers.
    pub(crate) fn router(self: Arc<Self>) -> Router {
        endpoint::router(api::endpoints(), &self)
            .merge(page::router(&self))
            .layer(middleware::from_fn(guarded))
            .with_state(self)
    }
}

/// Answers in time, and says to a browser what it may do with it.
async fn guarded(request: Request, next: Next) -> Response {
    let answer = tokio::time::timeout(PATIENCE, next.run(request)).await;
    let mut response = answer.unwrap_or_else(|_| Problem::busy("it took too long").into_response());
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Not no-referrer: a browser would say of our own forms that they come from nowhere, and they would be refused.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
