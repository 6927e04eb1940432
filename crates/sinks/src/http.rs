//! The HTTP(S) destinations: the payment rail, the CloudEvents sink, the metadata store and the OTLP collector.
//!
//! The rail sends one signed request per attempt, and one GET per inquiry. It classifies a response by the tables of its
//! settings, never by text. It sends once per call: no redirects, no proxies, no retries. See `docs/sinks/http.md`.
//!
//! # Layout
//!
//! Requests:
//! - `settings`, `target`: the rail's settings and URLs
//! - `shape`, `body`, `template`: method, query, headers and body of a payment
//! - `credentials`: a bearer token, headers, and signatures: `signature` (webhooks), `jws`, `http_signature`, with
//!   `signing_key`
//! - `oauth`: access tokens; `reloadable`: secrets and certificates that follow their files
//! - `preview`: a request as text, without its secrets
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
//!
//! For banks and adapters:
//! - [`adapter_check`]: the conformance suite of the protocol

pub mod adapter_check;
mod address;
mod body;
mod callback;
mod client;
pub(crate) mod cloudevents;
mod credentials;
mod http_signature;
mod inquiry;
mod json;
mod jws;
mod oauth;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
mod outcome;
mod preview;
mod reloadable;
mod resolver;
mod response;
mod retry_after;
mod settings;
mod shape;
mod signature;
mod signing_key;
mod status_table;
pub(crate) mod store;
mod target;
mod template;
mod webhook;

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use reqwest::header::{ACCEPT, AUTHORIZATION, HeaderName, HeaderValue};
use reqwest::{Method, Request};
use symphony_db::payment::{RailAnswer, Reason};
use symphony_relay::rail::{
    Answer, BoxFuture, Callback, CallbackError, CallbackRequest, Endpoint, Inquiry, Invalid, Payment, Rail,
};

use crate::config::SettingError;
use crate::money::{self, Destination};
use address::Allowed;
use client::{HttpClient, Limits, SendError};
use credentials::Credentials;
use oauth::{Token, TokenSource};
pub use reloadable::reload_secrets;
use response::HttpResponse;
pub(crate) use settings::Settings;
use shape::Shape;
use target::{InquiryTarget, Target};

/// The status that says that a token is missing or was refused.
const UNAUTHORIZED: u16 = 401;

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
    shape: Shape,
    inquiry: Option<InquiryTarget>,
    idempotency_header: HeaderName,
    credentials: Credentials,
    tokens: Option<TokenSource>,
    client: HttpClient,
    outcome_table: outcome::OutcomeTable,
    inquiry_table: inquiry::InquiryTable,
    callback: Option<callback::CallbackReader>,
}

impl HttpRail {
    pub(crate) fn build(name: &str, settings: Settings) -> Result<Self, SettingError> {
        settings.check_limits()?;
        let allowed = Allowed::parse(&settings.allow_private)?;
        let target = Target::parse("url", &settings.url, settings.allow_http, &allowed)?;
        let inquiry = match &settings.inquiry_url {
            Some(template) => Some(InquiryTarget::parse(template, settings.allow_http, &allowed)?),
            None => None,
        };
        let https = target.is_https() || inquiry.as_ref().is_some_and(InquiryTarget::is_https);
        let idempotency_header = credentials::idempotency_header(&settings.idempotency_header)?;
        let endpoint_name = settings.endpoint.as_deref().or(target.host()).unwrap_or_default();
        let inquiry_identity = inquiry.as_ref().map(InquiryTarget::identity).unwrap_or_default();
        let owner = format!("rail {name}");
        let tokens = token_source(&owner, &settings, &allowed)?;
        let own = (idempotency_header.clone(), tokens.is_some());
        let reserved = move |header: &HeaderName| *header == own.0 || own.1 && *header == AUTHORIZATION;
        let rail = Self {
            name: name.to_owned(),
            endpoint: Endpoint::new(endpoint_name, &["http", &target.identity(), &inquiry_identity]),
            destination: settings.destination,
            max_bytes: settings.max_bytes,
            shape: Shape::build(&settings.shape(), &reserved)?,
            credentials: Credentials::read(&owner, settings.credential_sources(), reserved)?,
            tokens,
            idempotency_header,
            inquiry_table: inquiry::InquiryTable::new(&settings.inquiry, settings.response_fields()?)?,
            outcome_table: outcome::OutcomeTable::new(&settings)?,
            callback: match &settings.callback {
                Some(callback) => Some(callback::CallbackReader::new(callback, settings.response_fields()?)?),
                None => None,
            },
            client: HttpClient::new(&owner, settings.limits(), settings.tls_files(), allowed, https)?,
            target,
            inquiry,
        };
        rail.check_with_sample(settings.sample_file.as_deref())?;
        Ok(rail)
    }

    /// Renders the requests of a sample payment: a template that never works must not wait for the first payment.
    fn check_with_sample(&self, file: Option<&Path>) -> Result<(), SettingError> {
        let sample = body::sample(&self.name, file)?;
        let token = self.placeholder();
        let requests = || {
            self.payment_request(&sample, token.as_ref())?;
            if let Some(inquiry) = &self.inquiry {
                self.inquiry_request(inquiry, &sample, token.as_ref())?;
            }
            Ok(())
        };
        requests().map_err(|invalid: Invalid| {
            let text = format!(
                "cannot be used with the sample payload ({}): {}",
                file.map_or("set sample_file to one as producers enqueue it", |_| "of sample_file"),
                invalid.message
            );
            SettingError::new("body", text)
        })
    }

    /// Stands for the access token in a request that is not sent.
    fn placeholder(&self) -> Option<Token> {
        self.tokens.is_some().then(Token::placeholder)
    }

    /// Adds what payments and inquiries have in common. Signatures come last: they cover the bytes that are sent.
    fn finish(&self, mut request: Request, key: &str, token: Option<&Token>) -> Result<Request, Invalid> {
        let headers = request.headers_mut();
        headers.insert(self.idempotency_header.clone(), key_header(key)?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.extend(token.map(|token| (AUTHORIZATION, token.header.clone())));
        self.credentials.add(&mut request, key)?;
        Ok(request)
    }

    /// The request of a payment without its key and credentials.
    fn unfinished_request(&self, payment: &Payment) -> Result<Request, Invalid> {
        let mut request = self.shape.payment_request(self.target.url(), payment)?;
        request.headers_mut().insert(SEQUENCE_HEADER, payment.sequence_id.into());
        Ok(request)
    }

    fn payment_request(&self, payment: &Payment, token: Option<&Token>) -> Result<Request, Invalid> {
        self.finish(self.unfinished_request(payment)?, &payment.idempotency_key, token)
    }

    fn inquiry_request(
        &self,
        inquiry: &InquiryTarget,
        payment: &Payment,
        token: Option<&Token>,
    ) -> Result<Request, Invalid> {
        let mut request = Request::new(Method::GET, inquiry.url(&payment.idempotency_key)?);
        self.shape.add_headers(payment, request.headers_mut())?;
        self.finish(request, &payment.idempotency_key, token)
    }

    /// Sends a request once, or a second time with a new access token if the bank answered 401 and `may_repeat` says that
    /// such an answer means that it did nothing.
    async fn send(
        &self,
        build: impl Fn(Option<&Token>) -> Result<Request, Invalid>,
        may_repeat: impl Fn(&HttpResponse) -> bool,
    ) -> Result<HttpResponse, SendError> {
        let build = |token: Option<&Token>| build(token).map_err(|invalid| SendError::NotSent(invalid.message));
        let Some(tokens) = &self.tokens else {
            return self.client.send(build(None)?).await;
        };
        let began = Instant::now();
        let token = tokens.token().await.map_err(SendError::NotSent)?;
        let response = self.client.send(build(Some(&*token))?).await?;
        if response.status == UNAUTHORIZED
            && may_repeat(&response)
            && let Some(token) = tokens.token_instead_of(&token, began).await
        {
            return self.client.send(build(Some(&*token))?).await;
        }
        Ok(response)
    }

    async fn send_payment(&self, payment: &Payment) -> Answer {
        let answer = |response: &HttpResponse| self.outcome_table.answer(response, &self.inquiry_table);
        let nothing_was_paid = |response: &HttpResponse| matches!(answer(response), Answer::Retryable { .. });
        match self.send(|token| self.payment_request(payment, token), nothing_was_paid).await {
            Ok(response) => answer(&response),
            Err(SendError::NotSent(message)) => not_sent(message),
            Err(SendError::MayHaveBeenSent(message)) => {
                Answer::Unknown { message, rail: RailAnswer::default(), row_only: false }
            }
        }
    }

    async fn send_inquiry(&self, payment: &Payment) -> Inquiry {
        let no_answer = |message| Inquiry::NoAnswer { message, rail: RailAnswer::default() };
        let Some(inquiry) = &self.inquiry else {
            return no_answer("this rail has no inquiry_url".to_owned());
        };
        // An inquiry pays nothing, and can always be repeated.
        match self.send(|token| self.inquiry_request(inquiry, payment, token), |_| true).await {
            Ok(response) => self.inquiry_table.inquiry(&response),
            Err(SendError::NotSent(message) | SendError::MayHaveBeenSent(message)) => no_answer(message),
        }
    }
}

/// The source of access tokens, if the settings have one.
fn token_source(owner: &str, settings: &Settings, allowed: &Allowed) -> Result<Option<TokenSource>, SettingError> {
    let Some(oauth) = settings.oauth.clone() else { return Ok(None) };
    if settings.bearer_env.is_some() || settings.bearer_file.is_some() {
        return Err(SettingError::new("oauth", "and a bearer token are both set: keep one"));
    }
    let target = Target::parse("oauth.token_url", &oauth.token_url, settings.allow_http, allowed)?;
    let has_certificate = settings.client_certificate_file.is_some();
    let limits = Limits {
        timeout: oauth.timeout,
        connect_timeout: settings.connect_timeout.min(oauth.timeout / 2),
        idle_timeout: None,
        ..settings.limits()
    };
    let client = HttpClient::new(owner, limits, settings.tls_files(), allowed.clone(), target.is_https())?;
    TokenSource::build(owner, oauth, target, client, has_certificate).map(Some)
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
        money::check(&payment.payload, self.destination)?;
        self.shape.check(payment)
    }

    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        Box::pin(self.send_payment(payment))
    }

    fn timeout(&self) -> Duration {
        let once = self.client.timeout();
        // A token, the request, another token, the request again.
        self.tokens.as_ref().map_or(once, |tokens| 2 * (once + tokens.timeout()))
    }

    fn preview(&self, payment: &Payment) -> Option<Result<String, Invalid>> {
        let token = self.placeholder();
        let request = self.validate(payment).and_then(|()| self.payment_request(payment, token.as_ref()));
        Some(request.map(|request| preview::text(&request, &self.target)))
    }

    fn check(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(async {
            match &self.tokens {
                Some(tokens) => tokens.token().await.map(drop),
                None => Ok(()),
            }
        })
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
