//! Refusals as machines read them: `application/problem+json` (RFC 9457).

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;
use symphony_outbox::error::{Fault, OperateError, Report};

/// Why a request was not answered as asked.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub(crate) struct Problem {
    /// Which kind of problem: `about:blank` says that it is no more than its status.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The status in words.
    title: &'static str,
    /// The HTTP status.
    status: u16,
    /// What is wrong with this request, and what to do.
    detail: String,
    /// The SQLSTATE by which the database refused.
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

    /// What was given cannot be used.
    pub(crate) fn bad(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, detail)
    }

    /// There is no such thing.
    pub(crate) fn missing(what: impl std::fmt::Display) -> Self {
        Self::new(StatusCode::NOT_FOUND, format!("there is no {what} here"))
    }

    /// Not now.
    pub(crate) fn busy(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }

    fn said(status: StatusCode, report: &Report) -> Self {
        Self { sqlstate: report.sqlstate().map(str::to_owned), ..Self::new(status, report.to_string()) }
    }

    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// What is wrong, for people.
    pub(crate) fn detail(&self) -> &str {
        &self.detail
    }

    /// The status in words.
    pub(crate) fn title(&self) -> &'static str {
        self.title
    }
}

impl From<Fault> for Problem {
    fn from(fault: Fault) -> Self {
        if let Fault::MissingRole { role: role @ "symphony_auditor", .. } = &fault {
            let detail =
                format!("this console shows no payloads: the login of console.read_url does not hold {role}");
            return Self::new(StatusCode::FORBIDDEN, detail);
        }
        let report = fault.report();
        let status = match &fault {
            Fault::RetryTransaction(_) | Fault::LockHeld(_) | Fault::ConnectionLost { .. } => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            Fault::Other(report) => match report.sqlstate() {
                // An argument that is out of range, or text that PostgreSQL cannot hold.
                Some(state) if state == "P7005" || state.starts_with("22") => StatusCode::BAD_REQUEST,
                // A statement that took too long, too many connections, a server that shuts down.
                Some(state) if state.starts_with("57") || state.starts_with("53") => {
                    StatusCode::SERVICE_UNAVAILABLE
                }
                _ => StatusCode::INTERNAL_SERVER_ERROR,
            },
            // The lane is not there: neither is what was asked for.
            Fault::NotInstalled(_) => StatusCode::NOT_FOUND,
            Fault::NotReadCommitted(_)
            | Fault::MissingRole { .. }
            | Fault::AppendOnly(_)
            | Fault::TerminalBackstop(_) => StatusCode::INTERNAL_SERVER_ERROR,
        };
        Self { detail: fault.to_string(), ..Self::said(status, report) }
    }
}

impl From<OperateError> for Problem {
    fn from(error: OperateError) -> Self {
        match error {
            OperateError::InvalidState(report) => Self::said(StatusCode::CONFLICT, &report),
            OperateError::InvalidArgument(report) if report.message().starts_with("there is no outbox") => {
                Self::said(StatusCode::NOT_FOUND, &report)
            }
            OperateError::InvalidArgument(report) => Self::said(StatusCode::BAD_REQUEST, &report),
            OperateError::UnknownRail(report) => Self::said(StatusCode::NOT_FOUND, &report),
            OperateError::Fault(fault) => fault.into(),
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
