//! The console as `symphony run` serves it: access, API, dashboard and audit export.
//!
//! # Layout
//! - [`fixture`]: a database with rows in every state, and a relayer that serves the console; [`http`]: a client
//! - [`scopes`]: every endpoint with every token, from the API's own description
//! - [`refusals`]: what keeps the console from starting, and the requests that it refuses
//! - [`http_attack`]: denial of service by raw sockets; [`host_header`]: the host names that it answers
//! - [`token_limits`]: what one token may use
//! - [`hostile_text`]: control characters in stored text, on pages and terminals
//! - [`personal_data`]: the scope `read` names no operator
//! - [`read_api`]: the endpoints that read
//! - [`operator_actions`]: the endpoints that act, and what the audit log keeps
//! - [`audit_export`]: the export as CSV and NDJSON
//! - [`pages`], [`live`]: the dashboard, without scripts and with
//! - [`openapi_conformance`]: every response against the API's description
//! - [`browser`]: the dashboard in a real browser
//! - [`large_ledger`]: the response time of every page on a database with many rows
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not recognise helpers as tests"
)]

mod audit_export;
mod browser;
mod fixture;
mod host_header;
mod hostile_text;
mod http;
mod http_attack;
mod large_ledger;
mod live;
mod openapi_conformance;
mod operator_actions;
mod pages;
mod personal_data;
mod read_api;
mod refusals;
mod scopes;
mod token_limits;
