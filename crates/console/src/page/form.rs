//! Form bodies with a CSRF token, and the confirmation of actions that move money.

use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use subtle::ConstantTimeEq as _;

use super::PageError;
use crate::problem::Problem;
use crate::server::head::{MAX_BODY_BYTES, too_large};
use crate::session::Visitor;

/// The fields of a form that carried the CSRF token of the visitor.
pub(super) struct CsrfForm<T>(pub(super) T);

#[derive(Deserialize)]
struct CsrfToken {
    #[serde(default)]
    csrf: String,
}

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for CsrfForm<T> {
    type Rejection = PageError;

    async fn from_request(request: Request, _: &S) -> Result<Self, PageError> {
        let visitor = request.extensions().get::<Visitor>().cloned();
        let expected = visitor.ok_or_else(Problem::not_admitted)?.csrf;
        let body = to_bytes(request.into_body(), MAX_BODY_BYTES).await.map_err(|_| too_large(MAX_BODY_BYTES))?;
        let CsrfToken { csrf } = read(&body)?;
        if !bool::from(csrf.as_bytes().ct_eq(expected.as_bytes())) {
            let detail =
                "the form has no valid CSRF token: the page is older than your session; reload it and try again";
            return Err(Problem::new(StatusCode::FORBIDDEN, detail).into());
        }
        Ok(Self(read(&body)?))
    }
}

/// Parses a form body.
pub(super) fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    serde_urlencoded::from_bytes(body)
        .map_err(|error| Problem::bad_request(format!("the form could not be read: {error}")))
}

/// The visitor, as the middleware that admitted the request recorded it.
impl<S: Send + Sync> FromRequestParts<S> for Visitor {
    type Rejection = PageError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, PageError> {
        let visitor = parts.extensions.get::<Self>().cloned();
        visitor.ok_or_else(|| Problem::not_admitted().into())
    }
}

/// Refuses an action unless the operator typed the name of what it acts on.
pub(super) fn check_confirmation(typed: &str, name: &str) -> Result<(), Problem> {
    if typed.trim() == name {
        return Ok(());
    }
    Err(Problem::bad_request(format!("not confirmed: the typed text differs; type {name} to confirm")))
}
