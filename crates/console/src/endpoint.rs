//! An endpoint of the API: path, scope, request and response schemas, handler.
//!
//! The router and the OpenAPI description are built from the same list, so both have the same endpoints, and each has a
//! scope.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::access::{FOREIGN_ORIGIN, Scope, names_loopback, same_origin};
use super::extract::buffer_body;
use super::problem::Problem;
use super::{Console, ConsoleState};
use crate::server::head::MAX_BODY_BYTES;

/// The media type of all responses except exports.
const JSON: &[&str] = &["application/json"];

/// An endpoint.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    /// Below `/api/v1`.
    pub(crate) path: &'static str,
    pub(crate) scope: Scope,
    /// One sentence for the description.
    pub(crate) summary: &'static str,
    /// The query of a GET, the body of a POST.
    pub(crate) request_schema: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) response_schema: fn(&mut SchemaGenerator) -> Schema,
    /// The media types of the response.
    pub(crate) media: &'static [&'static str],
    handler: MethodRouter<ConsoleState>,
}

/// A request without parameters.
#[derive(Debug, serde::Deserialize, JsonSchema)]
pub(crate) struct NoParams {}

impl Endpoint {
    /// An endpoint that reads.
    pub(crate) fn get<Q: JsonSchema, A: JsonSchema, T: 'static>(
        path: &'static str,
        scope: Scope,
        summary: &'static str,
        handler: impl Handler<T, ConsoleState>,
    ) -> Self {
        let (request_schema, response_schema) = (schema_of::<Q>, schema_of::<A>);
        Self {
            method: Method::GET,
            path,
            scope,
            summary,
            request_schema,
            response_schema,
            media: JSON,
            handler: get(handler),
        }
    }

    /// An endpoint that acts, for the scope `operate`.
    pub(crate) fn post<B: JsonSchema, A: JsonSchema, T: 'static>(
        path: &'static str,
        summary: &'static str,
        handler: impl Handler<T, ConsoleState>,
    ) -> Self {
        let (request_schema, response_schema) = (schema_of::<B>, schema_of::<A>);
        Self {
            method: Method::POST,
            path,
            scope: Scope::Operate,
            summary,
            request_schema,
            response_schema,
            media: JSON,
            handler: post(handler),
        }
    }

    /// The same endpoint with other media types.
    pub(crate) fn with_media(self, media: &'static [&'static str]) -> Self {
        Self { media, ..self }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The endpoints, each behind its scope.
pub(crate) fn router(endpoints: Vec<Endpoint>, console: &ConsoleState) -> Router<ConsoleState> {
    let mut router = Router::new();
    for endpoint in endpoints {
        let guard = middleware::from_fn_with_state((Arc::clone(console), endpoint.scope), admit);
        router = router.route(&format!("/api/v1{}", endpoint.path), endpoint.handler.layer(guard));
    }
    router.route("/api/{*rest}", axum::routing::any(async || Problem::not_found("endpoint at this path")))
}

/// Admits a request to its handler, or refuses it.
async fn admit(State((console, scope)): State<(ConsoleState, Scope)>, request: Request, next: Next) -> Response {
    let admitted = async {
        let caller = authorize(&console, scope, &request)?;
        let mut request = buffer_body(request, MAX_BODY_BYTES).await?;
        let permit = console.requests.try_acquire(&caller);
        let permit = permit.ok_or_else(Problem::too_many_requests)?;
        request.extensions_mut().insert(caller);
        Ok::<_, Problem>((request, permit))
    };
    match admitted.await {
        Ok((request, _permit)) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn authorize(console: &Console, scope: Scope, request: &Request) -> Result<super::access::Caller, Problem> {
    let headers = request.headers();
    if console.access.is_open() && !names_loopback(headers) {
        return Err(Problem::not_loopback());
    }
    let caller = console.access.caller(headers).ok_or_else(|| {
        Problem::new(StatusCode::UNAUTHORIZED, "no known token: send the header Authorization: Bearer sym_…")
    })?;
    if !caller.may(scope) {
        let detail = format!("this token has no scope {:?}", scope.as_str());
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    if request.method() != Method::GET && !same_origin(headers) {
        return Err(Problem::new(StatusCode::FORBIDDEN, FOREIGN_ORIGIN));
    }
    Ok(caller)
}
