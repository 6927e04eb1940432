//! One endpoint of the API: its path, what it needs, what it takes and gives. The router and the description are made from the same list,
//! so that neither knows an endpoint that the other does not, and none is without a scope.

use std::sync::Arc;

use axum::Router;
use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::{Method, StatusCode};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use schemars::{JsonSchema, Schema, SchemaGenerator};

use super::access::{Scope, names_loopback, same_origin};
use super::given::with_body_read;
use super::problem::Problem;
use super::{Console, Desk};
use crate::server::head::MAX_BODY_BYTES;

/// What all answers are but files.
const JSON: &[&str] = &["application/json"];

/// An endpoint.
pub(crate) struct Endpoint {
    pub(crate) method: Method,
    /// Below `/api/v1`.
    pub(crate) path: &'static str,
    pub(crate) scope: Scope,
    /// What it is for, in a sentence.
    pub(crate) summary: &'static str,
    /// The query of a GET, the body of a POST.
    pub(crate) takes: fn(&mut SchemaGenerator) -> Schema,
    pub(crate) gives: fn(&mut SchemaGenerator) -> Schema,
    /// In which forms it gives it.
    pub(crate) media: &'static [&'static str],
    handler: MethodRouter<Desk>,
}

/// Nothing is asked.
#[derive(Debug, serde::Deserialize, JsonSchema)]
pub(crate) struct Nothing {}

impl Endpoint {
    /// Something to read.
    pub(crate) fn get<Q: JsonSchema, A: JsonSchema, T: 'static>(
        path: &'static str,
        scope: Scope,
        summary: &'static str,
        handler: impl Handler<T, Desk>,
    ) -> Self {
        let (takes, gives) = (schema_of::<Q>, schema_of::<A>);
        Self { method: Method::GET, path, scope, summary, takes, gives, media: JSON, handler: get(handler) }
    }

    /// Something to do.
    pub(crate) fn post<B: JsonSchema, A: JsonSchema, T: 'static>(
        path: &'static str,
        summary: &'static str,
        handler: impl Handler<T, Desk>,
    ) -> Self {
        let (takes, gives) = (schema_of::<B>, schema_of::<A>);
        Self {
            method: Method::POST,
            path,
            scope: Scope::Operate,
            summary,
            takes,
            gives,
            media: JSON,
            handler: post(handler),
        }
    }

    /// The same, as a file of one of these kinds.
    pub(crate) fn gives_files(self, media: &'static [&'static str]) -> Self {
        Self { media, ..self }
    }
}

fn schema_of<T: JsonSchema>(generator: &mut SchemaGenerator) -> Schema {
    generator.subschema_for::<T>()
}

/// The endpoints, each behind its scope.
pub(crate) fn router(endpoints: Vec<Endpoint>, desk: &Desk) -> Router<Desk> {
    let mut router = Router::new();
    for endpoint in endpoints {
        let guard = middleware::from_fn_with_state((Arc::clone(desk), endpoint.scope), admit);
        router = router.route(&format!("/api/v1{}", endpoint.path), endpoint.handler.layer(guard));
    }
    router.route("/api/{*rest}", axum::routing::any(async || Problem::missing("endpoint of that name")))
}

/// Lets a request through to its handler, or says why not.
async fn admit(State((desk, scope)): State<(Desk, Scope)>, request: Request, next: Next) -> Response {
    let admitted = async {
        let caller = allowed(&desk, scope, &request)?;
        let mut request = with_body_read(request, MAX_BODY_BYTES).await?;
        let place = desk.places.take(&caller);
        let place = place.ok_or_else(|| Problem::busy("too many requests at a time"))?;
        request.extensions_mut().insert(caller);
        Ok::<_, Problem>((request, place))
    };
    match admitted.await {
        Ok((request, _place)) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn allowed(desk: &Console, scope: Scope, request: &Request) -> Result<super::access::Caller, Problem> {
    let headers = request.headers();
    if desk.access.is_open() && !names_loopback(headers) {
        let detail = "without tokens the console answers on localhost, 127.0.0.1 and [::1] alone";
        return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, detail));
    }
    let caller = desk
        .access
        .caller(headers)
        .ok_or_else(|| Problem::new(StatusCode::UNAUTHORIZED, "give a token: Authorization: Bearer sym_…"))?;
    if !caller.may(scope) {
        let detail = format!("this token has no scope {:?}", scope.word());
        return Err(Problem::new(StatusCode::FORBIDDEN, detail));
    }
    if request.method() != Method::GET && !same_origin(headers) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "pages of other sites may not act here"));
    }
    Ok(caller)
}
