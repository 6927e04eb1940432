//! Where one signs in with a token, and leaves again.

use askama::Template;
use axum::body::to_bytes;
use axum::extract::{Query, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use serde::Deserialize;

use super::form::{self, Sent};
use super::{Frame, Refusal, shown};
use crate::console::Desk;
use crate::console::access::same_origin;
use crate::console::given::with_body_read;
use crate::console::problem::Problem;
use crate::server::head::too_large;

/// Bytes of the form of a stranger: a token, and the page to go to.
const MAX_LOGIN_BYTES: usize = 4 * 1024;

#[derive(Template)]
#[template(path = "login.html")]
struct Page {
    frame: Frame,
    next: String,
    wrong: bool,
}

#[derive(Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    next: String,
}

#[derive(Deserialize)]
struct Shown {
    #[serde(default)]
    token: String,
    #[serde(default)]
    next: String,
}

#[derive(Deserialize)]
pub(super) struct Nothing {}

pub(super) async fn page(State(desk): State<Desk>, Query(asked): Query<Asked>) -> Response {
    if desk.access.is_open() {
        return Redirect::to("/").into_response();
    }
    shown(&Page { frame: Frame::outside(), next: local(&asked.next).to_owned(), wrong: false })
}

pub(super) async fn enter(
    State(desk): State<Desk>,
    headers: HeaderMap,
    request: Request,
) -> Result<Response, Refusal> {
    if !same_origin(&headers) {
        return Err(Problem::new(StatusCode::FORBIDDEN, "pages of other sites may not sign in here").into());
    }
    let body = with_body_read(request, MAX_LOGIN_BYTES).await?.into_body();
    let body = to_bytes(body, MAX_LOGIN_BYTES).await.map_err(|_| too_large(MAX_LOGIN_BYTES))?;
    let given: Shown = form::read(&body)?;
    let Some(caller) = desk.access.holder(given.token.trim()) else {
        let mut page = shown(&Page { frame: Frame::outside(), next: local(&given.next).to_owned(), wrong: true });
        *page.status_mut() = StatusCode::UNAUTHORIZED;
        return Ok(page);
    };
    let cookie = desk.sessions.begin(caller, &headers)?;
    Ok(([(header::SET_COOKIE, cookie)], Redirect::to(local(&given.next))).into_response())
}

pub(super) async fn leave(
    State(desk): State<Desk>,
    headers: HeaderMap,
    Sent(Nothing {}): Sent<Nothing>,
) -> Response {
    let cookie = desk.sessions.end(&headers);
    ([(header::SET_COOKIE, cookie)], Redirect::to("/login")).into_response()
}

/// A path of this site: whoever made the link must not send people elsewhere.
fn local(next: &str) -> &str {
    let ours = next.starts_with('/')
        && !next.starts_with("//")
        && !next.contains('\\')
        && !next.chars().any(char::is_control);
    if ours { next } else { "/" }
}

#[cfg(test)]
mod tests {
    use super::local;

    #[test]
    fn one_is_sent_to_pages_of_this_site_alone() {
        assert_eq!(local("/outboxes/1"), "/outboxes/1");
        for elsewhere in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nb"] {
            assert_eq!(local(elsewhere), "/", "{elsewhere}");
        }
    }
}
