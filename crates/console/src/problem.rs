//! Errors of the API as `application/problem+json` (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use symphony_db::error::{DatabaseError, ErrorDetails, OperateError, sqlstate};

/// Why a request was refused or failed.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// The kind of problem: always `about:blank`, so `status` says it all.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The HTTP status as text.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong with this request, and what to do next.
    detail: String,
    /// The SQLSTATE with which PostgreSQL refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    sqlstate: Option<String>,
}

impl Problem {
    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank",
            title: status.canonical_reason().unwrap_or("Problem"),
            status: status.as_u16(),
            detail: detail.into(),
            sqlstate: None,
        }
    }

    /// The request is wrong: 400.
    pub(crate) fn bad_request(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// The resource does not exist: 404.
    pub(crate) fn not_found(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no {what}"))
    }

    /// The request may succeed later: 503 with Retry-After.
    pub(crate) fn unavailable(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    /// The caller has used up its concurrent requests, or all callers together have.
    pub(crate) fn too_many_requests() -> Self {
        Self::unavailable("too many concurrent requests: try again in a moment")
    }

    /// A console without tokens was reached under another name than that of this machine.
    pub(crate) fn not_loopback() -> Self {
        let detail = "without tokens the console answers only requests for localhost, 127.0.0.1 and [::1]";
        Self::new(StatusCode::MISDIRECTED_REQUEST, detail)
    }

    /// A handler was called without the middleware that checks the caller: a bug in the router.
    pub(crate) fn not_admitted() -> Self {
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "this route has no access check: report this as a bug")
    }

    fn from_details(status: StatusCode, details: &ErrorDetails) -> Self {
        Self { sqlstate: details.sqlstate().map(str::to_owned), ..Self::new(status, details.to_string()) }
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// What is wrong, as text.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The HTTP status as text.
    pub(crate) fn title(&self) -> &'static str {
        self.title
    }
}

impl From<DatabaseError> for Problem {
    fn from(error: DatabaseError) -> Self {
        if let DatabaseError::MissingRole { role: role @ "symphony_auditor", .. } = &error {
            let detail = format!("this console shows no payloads: grant {role} to the login of console.read_url");
            return Self::new(StatusCode::FORBIDDEN, detail);
        }
        let details = error.details();
        let status = match &error {
            DatabaseError::RetryTransaction(_)
            | DatabaseError::LockHeld(_)
            | DatabaseError::ConnectionLost { .. } => StatusCode::SERVICE_UNAVAILABLE,
            DatabaseError::Other(details) => match details.sqlstate() {
                // An argument out of range, or text that PostgreSQL cannot store.
                Some(state) if sqlstate::is_invalid_argument(state) => StatusCode::BAD_REQUEST,
                // A statement timeout, too many connections, a server that shuts down.
                Some(state) if state.starts_with("57") || state.starts_with("53") => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
            // The lane is not installed, so it has no such resource.
            DatabaseError::NotInstalled(_) => StatusCode::NOT_FOUND,
            _ => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { detail: error.to_string(), ..Self::from_details(status, details) }
    }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::InvalidState(details) => Self::from_details(StatusCode::CONFLICT, &details),
            OperateError::InvalidArgument(details) if details.message().starts_with("there is no outbox") => {
                Self::from_details(StatusCode::NOT_FOUND, &details)
            }
            OperateError::InvalidArgument(details) => Self::from_details(StatusCode::BAD_REQUEST, &details),
            OperateError::UnknownRail(details) => Self::from_details(StatusCode::NOT_FOUND, &details),
            OperateError::Database(error) => error.into(),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = self.status();
        let mut response = (status, Json(self)).into_response();
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"symphony\""));
        } else if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
