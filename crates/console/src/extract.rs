//! axum extractors for queries, JSON bodies, path parameters and the caller, each with a size limit.
//!
//! A request that cannot be read is refused with a [`Problem`] that says what to send instead.

use std::time::Duration;

use axum::body::{Body, HttpBody as _, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use serde::Deserialize as _;
use serde::de::{DeserializeOwned, Deserializer, Error as _};
use symphony_db::OutboxId;
use symphony_db::event::EventId;
use symphony_db::metadata::EntryId;

use super::access::Caller;
use super::problem::Problem;
use crate::server::head::{MAX_BODY_BYTES, too_large};

/// How long a body may take to arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest name that the database stores, in characters.
pub(super) const MAX_NAME_CHARS: usize = 200;

/// Reads the whole body of a request into memory. Call it before acquiring a permit: a client may send its body slowly.
pub(crate) async fn buffer_body(request: Request, limit: usize) -> Result<Request, Problem> {
    let (parts, body) = request.into_parts();
    let limit_u64 = u64::try_from(limit).unwrap_or(u64::MAX);
    if body.size_hint().lower() > limit_u64 {
        return Err(too_large(limit));
    }
    match tokio::time::timeout(BODY_TIMEOUT, to_bytes(body, limit)).await {
        Ok(Ok(body)) => Ok(Request::from_parts(parts, Body::from(body))),
        Ok(Err(_)) => Err(Problem::bad_request("the request body is incomplete: send it again")),
        Err(_) => Err(Problem::new(
            StatusCode::REQUEST_TIMEOUT,
            format!("the request body did not arrive within {} s: send it again", BODY_TIMEOUT.as_secs()),
        )),
    }
}

/// The query string of a request.
pub(crate) struct QueryParams<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        let query = Query::<T>::try_from_uri(&parts.uri);
        query.map(|query| Self(query.0)).map_err(|error| Problem::bad_request(error.body_text()))
    }
}

/// A JSON body. It needs the content type `application/json`, which no form of another site can send.
pub(crate) struct JsonBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let kind =
            request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if kind.split(';').next().map(str::trim) != Some("application/json") {
            let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
            return Err(Problem::new(
                status,
                "the body is not declared as JSON: send JSON with Content-Type: application/json",
            ));
        }
        let body = to_bytes(request.into_body(), MAX_BODY_BYTES).await.map_err(|_| too_large(MAX_BODY_BYTES))?;
        // serde would accept an array as the fields in their order, which the API's description does not allow.
        if body.trim_ascii_start().first() != Some(&b'{') {
            return Err(Problem::bad_request("the body is not a JSON object: send an object with named fields"));
        }
        serde_json::from_slice(&body).map(Self).map_err(|error| {
            Problem::bad_request(format!("the body does not match the API's description: {error}"))
        })
    }
}

/// Deserializes a field that must be a JSON object, not an array.
pub(crate) fn json_object<'de, D: Deserializer<'de>, T: DeserializeOwned>(deserializer: D) -> Result<T, D::Error> {
    let mut object = serde_json::Map::deserialize(deserializer)?;
    for value in object.values_mut() {
        if let Some(whole) = as_whole_number(value) {
            *value = whole.into();
        }
    }
    T::deserialize(serde_json::Value::Object(object)).map_err(D::Error::custom)
}

/// The whole number that was written as a fraction, such as 5.0, if a double is exact there. JSON Schema takes it for an
/// integer, serde does not.
fn as_whole_number(value: &serde_json::Value) -> Option<i64> {
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let number = value.as_number().filter(|number| number.is_f64())?.as_f64()?;
    #[expect(clippy::cast_possible_truncation, reason = "it has no fraction and is within the exact range")]
    (number.fract() == 0.0 && number.abs() <= EXACT).then_some(number as i64)
}

/// The caller, as the middleware that admitted the request recorded it.
impl<S: Send + Sync> FromRequestParts<S> for Caller {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts.extensions.get::<Self>().cloned().ok_or_else(Problem::not_admitted)
    }
}

/// An id that a path can contain.
pub(crate) trait PathParameter: std::str::FromStr {
    /// What the id must look like.
    const EXPECTED: &'static str;
}

impl PathParameter for OutboxId {
    const EXPECTED: &'static str = "the id of an outbox is a UUID";
}

impl PathParameter for EventId {
    const EXPECTED: &'static str = "the id of an event is an integer";
}

impl PathParameter for EntryId {
    const EXPECTED: &'static str = "the id of a metadata entry is a UUID";
}

/// An id in the path.
pub(crate) struct PathId<T>(pub(crate) T);

impl<T: PathParameter, S: Send + Sync> FromRequestParts<S> for PathId<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let PathName(id) = <PathName as FromRequestParts<S>>::from_request_parts(parts, state).await?;
        id.parse().map(Self).map_err(|_| Problem::bad_request(T::EXPECTED))
    }
}

/// A name in the path.
pub(crate) struct PathName(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for PathName {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = <Path<String> as FromRequestParts<S>>::from_request_parts(parts, state).await;
        let Path(name) = path.map_err(|error| Problem::bad_request(error.body_text()))?;
        check_name("the name", &name).map(|()| Self(name))
    }
}

/// Refuses a text that no name in the database can be.
pub(crate) fn check_name(what: &str, text: &str) -> Result<(), Problem> {
    if text.chars().count() > MAX_NAME_CHARS || text.contains('\0') {
        return Err(Problem::bad_request(format!(
            "{what} must have at most {MAX_NAME_CHARS} characters, and none of them may be NUL"
        )));
    }
    Ok(())
}

/// A checked filter, or none if it is blank: an empty field of a form filters nothing.
pub(crate) fn optional_name(what: &str, text: Option<String>) -> Result<Option<String>, Problem> {
    let text = text.filter(|text| !text.trim().is_empty());
    if let Some(text) = &text {
        check_name(what, text)?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[test]
    fn a_whole_number_may_be_written_with_a_fraction_of_zero() {
        #[derive(Deserialize)]
        struct Body {
            #[serde(deserialize_with = "json_object")]
            limits: std::collections::BTreeMap<String, Option<u32>>,
        }
        let body: Body = serde_json::from_str(r#"{"limits": {"a": 237.0, "b": 5, "c": null}}"#).unwrap();
        assert_eq!(body.limits.into_values().collect::<Vec<_>>(), [Some(237), Some(5), None]);
        for wrong in ["7.5", "1e300", "\"7\""] {
            assert!(
                serde_json::from_str::<Body>(&format!(r#"{{"limits": {{"a": {wrong}}}}}"#)).is_err(),
                "{wrong}"
            );
        }
    }
}
