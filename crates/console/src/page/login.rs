//! The sign-in page: exchanges a token for a session cookie, and ends the session.

use askama::Template;
use axum::body::to_bytes;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::form::CsrfForm;
use super::{Layout, PageError, render};
use crate::ConsoleState;
use crate::access::{FOREIGN_ORIGIN, same_origin};
use crate::extract::buffer_body;
use crate::problem::Problem;
use crate::server::head::too_large;

/// The largest sign-in form, in bytes: a token and the page to return to.
const MAX_LOGIN_BYTES: usize = 4 * 1024;

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    layout: Layout,
    next: String,
    is_refused: bool,
}

#[derive(Deserialize)]
pub(super) struct ReturnTo {
    #[serde(default)]
    next: String,
}

#[derive(Deserialize)]
struct SignInForm {
    #[serde(default)]
    token: String,
    #[serde(default)]
    next: String,
}

#[derive(Deserialize)]
pub(super) struct NoFields {}

pub(super) async fn page(State(console): State<ConsoleState>, Query(return_to): Query<ReturnTo>) -> Response {
    if console.access.is_open() {
        return Redirect::to("/").into_response();
    }
    render(&Page { layout: Layout::signed_out(), next: local(&return_to.next).to_owned(), is_refused: false })
}

pub(super) async fn sign_in(
    State(console): State<ConsoleState>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, PageError> {
    if !same_origin(&headers) {
        return Err(Problem::new(StatusCode::FORBIDDEN, FOREIGN_ORIGIN).into());
    }
    let body = buffer_body(request, MAX_LOGIN_BYTES).await?.into_body();
    let body = to_bytes(body, MAX_LOGIN_BYTES).await.map_err(|_| too_large(MAX_LOGIN_BYTES))?;
    let form: SignInForm = super::form::read(&body)?;
    let Some(caller) = console.access.caller_by_token(form.token.trim()) else {
        let mut page =
            render(&Page { layout: Layout::signed_out(), next: local(&form.next).to_owned(), is_refused: true });
        *page.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(page);
    };
    let cookie = console.sessions.sign_in(caller, &headers)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(local(&form.next))).into_response())
}

pub(super) async fn sign_out(
    State(console): State<ConsoleState>,
    headers: HeaderMap,
    CsrfForm(NoFields {}): CsrfForm<NoFields>,
) -> Response {
    let cookie = console.sessions.sign_out(&headers);
    ([(header::SET_COOKIE, cookie)], Redirect::to("/login")).into_response()
}

/// A path of this site, or `/`: a link must not redirect a visitor to another site.
fn local(next: &str) -> &str {
    let is_local = next.starts_with('/')
        && !next.starts_with("//")
        && !next.contains('\\')
        && !next.chars().any(char::is_control);
    if is_local { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn the_redirect_after_sign_in_stays_on_this_site() {
        assert_eq!(local("/outboxes/1"), "/outboxes/1");
        for elsewhere in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb"] {
            assert_eq!(local(elsewhere), "/", "{elsewhere}");
        }
    }
}
