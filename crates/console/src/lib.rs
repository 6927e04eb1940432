//! The console: an HTTP API and a dashboard for on-call engineers, operators and auditors, served by `symphony run`.
//!
//! PostgreSQL decides what may be read and done, through two separate logins: one that reads and one that acts. This
//! crate decides who may call it, how many requests run at a time, and how results are shown.
//!
//! # Layout
//! - [`access`]: tokens and scopes
//! - [`api`]: the endpoints of the API, one resource per file
//! - [`chart`]: a bar chart as SVG
//! - [`database`]: the session pools of the two logins
//! - [`endpoint`]: an endpoint with its scope, schemas and access check
//! - [`export`]: the audit export as CSV and NDJSON
//! - [`extract`]: extractors for queries, bodies and paths, with limits
//! - [`live`]: server-sent events that make open pages refresh
//! - [`openapi`]: the OpenAPI description, generated from the list of endpoints
//! - [`page`]: the dashboard, one page per file; its labels are in `templates/` and `page/texts.rs`
//! - [`paging`]: pages and cursors
//! - [`problem`]: errors as `application/problem+json`
//! - [`quota`]: limits on concurrent work, per token and in total
//! - [`sanitize`]: removes control characters from stored text
//! - [`server`]: the HTTP server, with limits against slow and greedy clients
//! - [`session`]: sessions of signed-in visitors

pub mod access;
mod api;
mod chart;
mod database;
mod endpoint;
mod error;
pub mod export;
mod extract;
mod live;
mod openapi;
mod page;
mod paging;
mod problem;
mod quota;
pub mod sanitize;
pub mod server;
mod session;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::Request;
use axum::http::header::{self, HeaderValue};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse as _, Response};
use symphony_db::connect::Target;
use symphony_db::payment::Payload;
use symphony_db::payment::reader::Outbox;

pub use api::description as api_description;
pub use error::Error;

use access::Access;
use database::Database;
use live::Live;
use problem::Problem;
use quota::Quota;
use session::Sessions;

/// The style sheet of the dashboard, for other pages with the same look.
pub const STYLE: &str = include_str!("../assets/console.css");

/// Concurrent requests of all callers, and of one token.
const MAX_REQUESTS: usize = 32;
const MAX_REQUESTS_PER_TOKEN: usize = 16;
/// How long a response may take to begin, reading the request body included.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(20);
/// The roles of Symphony that each login may hold. The console does not start with a login that may do more.
const READ_ROLES: [&str; 2] = ["symphony_readonly", "symphony_auditor"];
const ACT_ROLES: [&str; 3] = ["symphony_operator", "symphony_readonly", "symphony_auditor"];
/// Only resources of this process, no frames, no inline scripts.
const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self' data:; connect-src 'self'; \
                      form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// Shows the request that a rail sends for a payment, without secrets. None if this process does not serve the rail, or the
/// rail cannot say. The error is why the payment cannot be sent.
pub type RequestPreview = Box<dyn Fn(&Outbox, &Payload) -> Option<Result<String, String>> + Send + Sync>;

/// The state that all handlers share.
pub struct Console {
    access: Access,
    database: Database,
    /// The name of the relayer that serves the console.
    worker: String,
    preview: RequestPreview,
    requests: Arc<Quota>,
    exports: Arc<Quota>,
    sessions: Sessions,
    /// The CSRF token of all forms if the console has no tokens.
    csrf: String,
    live: Live,
}

/// The shared state as axum passes it to handlers.
pub type ConsoleState = Arc<Console>;

/// The connection settings of the two logins.
pub struct Logins {
    read: Target,
    act: Option<Target>,
}

impl Logins {
    /// Parses the URLs; none if the console is switched off.
    pub fn parse(read: &str, act: &str) -> Result<Option<Self>, Error> {
        let (read, act) = (read.trim(), act.trim());
        if read.is_empty() && act.is_empty() {
            return Ok(None);
        }
        if read.is_empty() {
            return Err(Error::setting(
                "console.act_url is set and console.read_url is not",
                "set console.read_url to a login that holds symphony_readonly",
            ));
        }
        let named = |setting: &'static str| move |source| Error::Address { setting, source };
        let act = if act.is_empty() { None } else { Some(Target::parse(act).map_err(named("console.act_url"))?) };
        Ok(Some(Self { read: Target::parse(read).map_err(named("console.read_url"))?, act }))
    }

    /// Refuses logins with too few or too many rights.
    pub async fn check(&self) -> Result<(), Error> {
        database::check("console.read_url", &self.read, "symphony_readonly", &READ_ROLES).await?;
        if let Some(act) = &self.act {
            database::check("console.act_url", act, "symphony_operator", &ACT_ROLES).await?;
        }
        Ok(())
    }
}

impl Console {
    /// Builds the console. It connects to the database with the first request.
    pub fn build(
        tokens: &[access::TokenConfig],
        logins: &Logins,
        listener: Option<SocketAddr>,
        worker: &str,
        preview: RequestPreview,
    ) -> Result<ConsoleState, Error> {
        let on_loopback = listener.is_some_and(|address| address.ip().is_loopback());
        Ok(Arc::new(Self {
            access: Access::new(tokens, on_loopback)?,
            database: Database::new(&logins.read, logins.act.as_ref()),
            worker: worker.to_owned(),
            preview,
            requests: Quota::new(MAX_REQUESTS, MAX_REQUESTS_PER_TOKEN),
            exports: Quota::new(api::MAX_EXPORTS, api::MAX_EXPORTS_PER_TOKEN),
            sessions: Sessions::default(),
            csrf: session::random().map_err(Error::Random)?,
            live: Live::new(),
        }))
    }

    /// The routes of the API and the dashboard.
    pub fn router(self: Arc<Self>) -> Router {
        endpoint::router(api::endpoints(), &self)
            .merge(page::router(&self))
            .layer(middleware::from_fn(add_timeout_and_headers))
            .with_state(self)
    }
}

/// Limits the time to a response, and adds the security headers.
async fn add_timeout_and_headers(request: Request, next: Next) -> Response {
    let response = tokio::time::timeout(RESPONSE_TIMEOUT, next.run(request)).await;
    let mut response = response
        .unwrap_or_else(|_| Problem::unavailable("the request took longer than 20 s: try again").into_response());
    let headers = response.headers_mut();
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_SECURITY_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        // Not no-referrer: browsers would send our own forms with `Origin: null`, and the console would refuse them.
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
