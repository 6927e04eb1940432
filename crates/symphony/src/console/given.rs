//! What a request gives, read within bounds, and refused in words that a machine can keep.

use std::time::Duration;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::Deserialize as _;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use symphony_outbox::OutboxId;
use symphony_outbox::event::EventId;
use symphony_outbox::metadata::EntryId;

use super::access::Caller;
use super::problem::Problem;
use crate::server::head::{MAX_BODY_BYTES, too_large};

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest name that the database keeps.
pub(super) const NAME: usize = 200;

/// The same request with its body read. It takes no place meanwhile: a body may be slow.
pub(crate) async fn with_body_read(request: Request, limit: usize) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let limit_u64 = u64::try_from(limit).unwrap_or(u64::MAX);
    if body.size_hint().lower() > limit_u64 {
        return Err(too_large(limit));
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, limit)).await {
        Ok(Ok(body)) => Ok(Request::from_parts(parts, Body::from(body))),
        Ok(Err(_)) => Err(Problem::bad("the body did not arrive whole")),
        Err(_) => Err(Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time")),
    }
}

/// The query of a request.
pub(crate) struct Asked<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|query| Self(query.0)).map_err(|error| Problem::bad(error.body_text()))
    }
}

/// The JSON that a request brings. It must say that it is JSON, which no form of another site can.
pub(crate) struct Given<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Given<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind =
            request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(status, "send JSON, with Content-Type: application/json"));
        }
        let body = to_bytes(request.into_body(), MAX_BODY_BYTES).await.map_err(|_| too_large(MAX_BODY_BYTES))?;
        // A list would be taken for the fields in their order, which nobody was told.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(Problem::bad("the body is not a JSON object"));
        }
        serde_json::from_slice(&body)
            .map(Self)
            .map_err(|error| Problem::bad(format!("the body cannot be used: {error}")))
    }
}

/// The same for a field that is an object.
pub(crate) fn object<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let object = serde_json::Map::deserialize(deserializer)?;
    T::deserialize(serde_json::Value::Object(object)).map_err(D::Error::custom)
}

/// Who asks: put there by whoever let the request through.
impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(|| Problem::bad("nobody let this request in"))
    }
}

/// The id of an outbox, in the path.
pub(crate) struct OutboxInPath(pub(crate) OutboxId);

impl<S: Send + Sync> FromRequestParts<S> for OutboxInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let NameInPath(id) = <NameInPath as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        id.parse().map(Self).map_err(|_| Problem::bad("the id of an outbox is a UUID"))
    }
}

/// The number of an event, in the path.
pub(crate) struct EventInPath(pub(crate) EventId);

impl<S: Send + Sync> FromRequestParts<S> for EventInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let NameInPath(id) = <NameInPath as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        id.parse().map(Self).map_err(|_| Problem::bad("an event is named by its number"))
    }
}

/// The id of an entry of metadata, in the path.
pub(crate) struct EntryInPath(pub(crate) EntryId);

impl<S: Send + Sync> FromRequestParts<S> for EntryInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let NameInPath(id) = <NameInPath as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        id.parse().map(Self).map_err(|_| Problem::bad("the id of an entry is a UUID"))
    }
}

/// A name, in the path.
pub(crate) struct NameInPath(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for NameInPath {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = <Path<String> as FromRequestParts<S>>::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|error| Problem::bad(error.body_text()))?;
        bounded("the name", &name).map(|()| Self(name))
    }
}

/// Refuses what no name of the database can be.
pub(crate) fn bounded(what: &str, text: &str) -> Result<(), Problem> {
    if text.chars().count() > NAME || text.contains('\0') {
        return Err(Problem::bad(format!("{what} has at most {NAME} characters, and none of them is NUL")));
    }
    Ok(())
}

/// What was asked, if it was: an empty field of a form asks nothing.
pub(crate) fn asked(what: &str, text: Option<String>) -> Result<Option<String>, Problem> {
    let text = text.filter(|text| !text.trim().is_empty());
    if let Some(text) = &text {
        bounded(what, text)?;
    }
    Ok(text)
}
