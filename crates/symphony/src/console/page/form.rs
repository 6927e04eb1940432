//! What a form of ours brings back, once it is known to be one of ours.

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq as _;

use super::Refusal;
use crate::console::problem::Problem;
use crate::console::session::Visitor;
use crate::server::head::{MAX_BODY_BYTES, too_large};

/// The fields of a form, which held the secret that only our pages know.
pub(super) struct Sent<T>(pub(super) T);

#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    csrf: String,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for Sent<T> {
    type Rejection = Refusal;

    async fn from_request(request: Request, _: &S) -> Result<Self, Refusal> {
        let visitor = request.extensions().get::<Visitor>().cloned();
        let expected = visitor.ok_or_else(|| Problem::bad("nobody let this request in"))?.csrf;
        let body = to_bytes(request.into_body(), MAX_BODY_BYTES).await.map_err(|_| too_large(MAX_BODY_BYTES))?;
        let Secret { csrf } = read(&body)?;
        if !bool::from(csrf.as_bytes().ct_eq(expected.as_bytes())) {
            let detail = "this form is not of this page, or the page is older than your session: load it again";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail).into());
        }
        Ok(Self(read(&body)?))
    }
}

/// The fields of a form.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_urlencoded::from_bytes(body).map_err(|error| Problem::bad(format!("the form cannot be used: {error}")))
}

/// Who looks: put there by whoever let the request through.
impl<S: Send + Sync> FromRequestParts<S> for Visitor {
    type Rejection = Refusal;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Refusal> {
        let visitor = parts.extensions.get::<Self>().cloned();
        visitor.ok_or_else(|| Problem::bad("nobody let this request in").into())
    }
}

/// Refuses what moves money unless its name was typed.
pub(super) fn confirmed(typed: &str, name: &str) -> Result<(), Problem> {
    if typed.trim() == name {
        return Ok(());
    }
    Err(Problem::bad(format!("to confirm, type {name}: what was typed is something else")))
}
