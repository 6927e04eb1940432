//! The HTTP(S) destinations: the payment rail, the CloudEvents sink, the metadata store and the OTLP collector.
//!
//! The rail sends one signed POST per attempt, and one GET per inquiry. It classifies a response by the tables of its
//! settings, never by text. It sends once per call: no redirects, no proxies, no retries. See `docs/sinks/http.md`.
//!
//! # Layout
//!
//! Requests:
//! - `settings`, `target`: the rail's settings and URLs; `credentials`, `signature`: authentication
//! - `address`, `resolver`: SSRF protection
//! - `client`: sends a request once, and tells "not sent" from "may have been sent"
//!
//! A bank's response, in the order of its processing:
//! - `response`, `json`, `retry_after`: a complete response and its fields
//! - `status_table`: a table by status and code
//! - `outcome`: the response to a payment becomes a `ResponseClass`, and that an [`Answer`]
//! - `inquiry`: the response to an inquiry becomes an `InquiryResult`, and that an [`Inquiry`]
//! - `callback`: a signed request of the bank becomes a [`Callback`]
//!
//! The other destinations:
//! - `webhook`: what the sink and the store share; `cloudevents`: the sink; `store`: the store
//! - `otlp`: batches of spans to a collector

mod address;
mod callback;
mod client;
pub(crate) mod cloudevents;
mod credentials;
mod inquiry;
mod json;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
mod outcome;
mod resolver;
mod response;
mod retry_after;
mod settings;
mod signature;
mod status_table;
pub(crate) mod store;
mod target;
mod webhook;

use std::fmt;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request};
use std::time::Duration;

use serde::Serialize;
use symphony_db::payment::{Payload, RailAnswer, Reason};
use symphony_relay::rail::{
    Answer, BoxFuture, Callback, CallbackError, CallbackRequest, Endpoint, Inquiry, Invalid, Payment, Rail,
};

use crate::config::SettingError;
use crate::money::{self, Destination};
use client::{HttpClient, SendError};
use credentials::Credentials;
pub(crate) use settings::Settings;
use target::{InquiryTarget, Target};

/// The error code of a payment that was not sent: no byte of the request left.
pub const NOT_SENT: &str = "NOT_SENT";
/// The error code of a payment that the bank did not make and that may be sent again.
pub const RAIL_RETRYABLE: &str = "RAIL_RETRYABLE";
/// The error code of a payment that the bank has refused terminally.
pub const RAIL_REFUSED: &str = "RAIL_REFUSED";

/// The header with the payment's number in its participant's sequence. A payment that is enqueued again has another one, so
/// it is no part of the body.
const SEQUENCE_HEADER: HeaderName = HeaderName::from_static("symphony-sequence-id");

/// A payment rail over HTTP(S).
pub struct HttpRail {
    name: String,
    endpoint: Endpoint,
    destination: Destination,
    max_bytes: usize,
    target: Target,
    inquiry: Option<InquiryTarget>,
    idempotency_header: HeaderName,
    credentials: Credentials,
    client: HttpClient,
    outcome_table: outcome::OutcomeTable,
    inquiry_table: inquiry::InquiryTable,
    callback: Option<callback::CallbackReader>,
}

/// The body of a payment request. Byte for byte the same on every attempt, redrive and later enqueue of the same payment: banks
/// compare bodies under a known key.
#[derive(Serialize)]
struct PaymentBody<'a> {
    instruction_id: &'a str,
    participant_id: &'a str,
    idempotency_key: &'a str,
    rail_type: &'a str,
    payload: &'a Payload,
}

impl HttpRail {
    pub(crate) fn build(name: &str, settings: Settings) -> Result<Self, SettingError> {
        settings.check_limits()?;
        let allowed = address::Allowed::parse(&settings.allow_private)?;
        let target = Target::parse("url", &settings.url, settings.allow_http, &allowed)?;
        let inquiry = match &settings.inquiry_url {
            Some(template) => Some(InquiryTarget::parse(template, settings.allow_http, &allowed)?),
            None => None,
        };
        let https = target.is_https() || inquiry.as_ref().is_some_and(InquiryTarget::is_https);
        let idempotency_header = credentials::idempotency_header(&settings.idempotency_header)?;
        let endpoint_name = settings.endpoint.as_deref().or(target.host()).unwrap_or_default();
        let inquiry_identity = inquiry.as_ref().map(InquiryTarget::identity).unwrap_or_default();
        Ok(Self {
            name: name.to_owned(),
            endpoint: Endpoint::new(endpoint_name, &["http", &target.identity(), &inquiry_identity]),
            destination: settings.destination,
            max_bytes: settings.max_bytes,
            credentials: Credentials::read(settings.credential_sources(), |header| *header == idempotency_header)?,
            idempotency_header,
            inquiry_table: inquiry::InquiryTable::new(&settings.inquiry, settings.response_fields()?)?,
            outcome_table: outcome::OutcomeTable::new(&settings)?,
            callback: match &settings.callback {
                Some(callback) => Some(callback::CallbackReader::new(callback, settings.response_fields()?)?),
                None => None,
            },
            client: HttpClient::new(settings.limits(), settings.tls_files(), allowed, https)?,
            target,
            inquiry,
        })
    }

    fn request(&self, method: Method, url: reqwest::Url, key: &str, body: Vec<u8>) -> Result<Request, Invalid> {
        let key_value = key_header(key)?;
        let mut headers = HeaderMap::new();
        headers.insert(self.idempotency_header.clone(), key_value);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        if method == Method::POST {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        self.credentials.add(&mut headers, key, &body)?;
        let mut request = Request::new(method, url);
        *request.headers_mut() = headers;
        if !body.is_empty() {
            *request.body_mut() = Some(body.into());
        }
        Ok(request)
    }

    fn payment_request(&self, payment: &Payment) -> Result<Request, Invalid> {
        let body = PaymentBody {
            instruction_id: &payment.instruction_id,
            participant_id: &payment.participant_id,
            idempotency_key: &payment.idempotency_key,
            rail_type: &payment.rail_type,
            payload: &payment.payload,
        };
        let body =
            serde_json::to_vec(&body).map_err(|_| Invalid { message: "payload must be JSON".to_owned() })?;
        let mut request = self.request(Method::POST, self.target.url(), &payment.idempotency_key, body)?;
        request.headers_mut().insert(SEQUENCE_HEADER, payment.sequence_id.into());
        Ok(request)
    }

    async fn send_payment(&self, payment: &Payment) -> Answer {
        let request = match self.payment_request(payment) {
            Ok(request) => request,
            Err(invalid) => return not_sent(invalid.message),
        };
        match self.client.send(request).await {
            Ok(response) => self.outcome_table.answer(&response, &self.inquiry_table),
            Err(SendError::NotSent(message)) => not_sent(message),
            Err(SendError::MayHaveBeenSent(message)) => {
                Answer::Unknown { message, rail: RailAnswer::default(), row_only: false }
            }
        }
    }

    async fn send_inquiry(&self, payment: &Payment) -> Inquiry {
        let no_answer = |message| Inquiry::NoAnswer { message, rail: RailAnswer::default() };
        let key = &payment.idempotency_key;
        let Some(inquiry) = &self.inquiry else {
            return no_answer("this rail has no inquiry_url".to_owned());
        };
        let request = match inquiry.url(key).and_then(|url| self.request(Method::GET, url, key, Vec::new())) {
            Ok(request) => request,
            Err(invalid) => return no_answer(invalid.message),
        };
        match self.client.send(request).await {
            Ok(response) => self.inquiry_table.inquiry(&response),
            Err(SendError::NotSent(message) | SendError::MayHaveBeenSent(message)) => no_answer(message),
        }
    }
}

/// The idempotency key as a header value. A server trims or folds whitespace, which would make it another key.
fn key_header(key: &str) -> Result<HeaderValue, Invalid> {
    let fits = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    match HeaderValue::from_str(key) {
        Ok(value) if fits => Ok(value),
        _ => Err(Invalid {
            message: "idempotency_key must be printable ASCII without spaces, since it is a header".to_owned(),
        }),
    }
}

fn not_sent(message: String) -> Answer {
    let reason = Reason { code: NOT_SENT.to_owned(), message: Some(message) };
    Answer::Retryable { reason, rail: RailAnswer::default(), retry_after: None }
}

impl Rail for HttpRail {
    fn validate(&self, payment: &Payment) -> Result<(), Invalid> {
        key_header(&payment.idempotency_key)?;
        if let Some(inquiry) = &self.inquiry {
            inquiry.url(&payment.idempotency_key)?;
        }
        let (size, limit) = (payment.payload.as_json().len(), self.max_bytes);
        if size > limit {
            let message = format!("payload has {size} bytes, and the limit is {limit} (max_bytes)");
            return Err(Invalid { message });
        }
        money::check(&payment.payload, self.destination)
    }

    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        Box::pin(self.send_payment(payment))
    }

    fn timeout(&self) -> Duration {
        self.client.timeout()
    }

    fn endpoint(&self) -> Option<Endpoint> {
        Some(self.endpoint.clone())
    }

    fn supports_inquiry(&self) -> bool {
        self.inquiry.is_some()
    }

    fn inquire<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(self.send_inquiry(payment))
    }

    fn supports_callback(&self) -> bool {
        self.callback.is_some()
    }

    fn read_callback(&self, request: &CallbackRequest<'_>) -> Result<Callback, CallbackError> {
        self.callback.as_ref().ok_or(CallbackError::NotSupported)?.read(request)
    }
}

impl fmt::Debug for HttpRail {
    /// The name and the host only: a URL's path or query may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.target.url().host_str().map(str::to_owned);
        f.debug_struct("HttpRail").field("name", &self.name).field("host", &host).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_of_a_rail_and_its_settings_shows_no_secret() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let toml = format!(
            "url = 'http://bank.example/pay?api_key=hidden1'\nallow_http = true\nbearer_file = {:?}\nsecret_file = {:?}\n\
             headers = {{ 'x-key' = {{ file = {:?} }} }}",
            file("bearer", "hidden2"),
            file("signing", "whsec_hidden3hidden3hidden3hidden3hidd"),
            file("header", "hidden4"),
        );
        let settings: Settings = crate::config::read(toml.parse().unwrap()).unwrap();
        let shown = format!("{settings:?}");
        assert!(!["hidden2", "hidden3", "hidden4"].iter().any(|secret| shown.contains(secret)), "{shown}");
        let rail = HttpRail::build("sepa", settings).unwrap();
        assert_eq!(format!("{rail:?}"), r#"HttpRail { name: "sepa", host: Some("bank.example"), .. }"#);
        let headers = format!("{:?}", rail.credentials.headers());
        assert!(!headers.contains("hidden"), "{headers}");
    }
}
