//! A rail that is an HTTP(S) endpoint: one signed POST per attempt, and a GET to ask what became of a key.
//!
//! It decides what may be concluded from what came back, by tables in its settings, and never concludes anything
//! from text. It sends once per call: no redirects, no proxies, no retries of its own. `docs/sinks/http.md` is its
//! manual.
//!
//! # Layout
//!
//! - `settings`: what can be set; `target`: where to; `credentials`: who we say we are; `signature`: and the proof of it
//! - `address`: which addresses may be reached; `resolver`: names that lead to them
//! - `line`: one request and its whole answer, or a fault, before or after anything was sent
//! - `reply`: what came back; `json`: its body, if that has one meaning; `retry_after`: when to try again
//! - `receiver`: the same line to receivers of events and metadata; `cloudevents`: a sink for events over it; `put`: a store
//!   for metadata; `otlp`: batches of spans to a collector
//! - `table`: keys of tables; `outcome`: what a dispatch's answer means; `inquiry`: the same for an inquiry's

mod address;
pub(crate) mod cloudevents;
mod credentials;
mod inquiry;
mod json;
mod line;
#[cfg(feature = "otlp")]
pub(crate) mod otlp;
mod outcome;
pub(crate) mod put;
mod receiver;
mod reply;
mod resolver;
mod retry_after;
mod settings;
mod signature;
mod table;
mod target;

use std::fmt;

use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request};
use std::time::Duration;

use serde::Serialize;
use symphony_outbox::payment::{Payload, RailAnswer, Reason};
use symphony_relay::rail::{Answer, BoxFuture, Inquiry, Invalid, Payment, Rail};

use crate::config::Problem;
use crate::money::{self, Destination};
use credentials::Credentials;
use line::{Fault, Line};
pub(crate) use settings::Settings;
use target::{InquiryTarget, Target};

/// The error code of a payment that never left the house: nobody was reached.
pub const NOT_SENT: &str = "NOT_SENT";
/// The error code of a payment that the rail has put off.
pub const RAIL_LATER: &str = "RAIL_LATER";
/// The error code of a payment that the rail has refused for good.
pub const RAIL_REFUSED: &str = "RAIL_REFUSED";

/// A rail that is an HTTP(S) endpoint.
pub struct HttpRail {
    name: String,
    destination: Destination,
    max_bytes: usize,
    target: Target,
    inquiry: Option<InquiryTarget>,
    idempotency_header: HeaderName,
    credentials: Credentials,
    line: Line,
    outcomes: outcome::Outcomes,
    verdicts: inquiry::Verdicts,
}

/// What is sent. The same on every attempt, byte for byte: banks compare bodies under a known key.
#[derive(Serialize)]
struct Body<'a> {
    instruction_id: &'a str,
    participant_id: &'a str,
    sequence_id: i64,
    idempotency_key: &'a str,
    rail_type: &'a str,
    payload: &'a Payload,
}

impl HttpRail {
    pub(crate) fn build(name: &str, settings: Settings) -> Result<Self, Problem> {
        settings.check_limits()?;
        let allowed = address::Allowed::parse(&settings.allow_private)?;
        let target = Target::parse("url", &settings.url, settings.allow_http, &allowed)?;
        let inquiry = match &settings.inquiry_url {
            Some(template) => Some(InquiryTarget::parse(template, settings.allow_http, &allowed)?),
            None => None,
        };
        let https = target.is_https() || inquiry.as_ref().is_some_and(InquiryTarget::is_https);
        let idempotency_header = credentials::idempotency_header(&settings.idempotency_header)?;
        Ok(Self {
            name: name.to_owned(),
            destination: settings.destination,
            max_bytes: settings.max_bytes,
            credentials: Credentials::read(settings.sources(), |header| *header == idempotency_header)?,
            idempotency_header,
            verdicts: inquiry::Verdicts::new(&settings.inquiry, settings.answer_keys()?)?,
            outcomes: outcome::Outcomes::new(&settings)?,
            line: Line::new(settings.limits(), settings.files(), allowed, https)?,
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
        let body = Body {
            instruction_id: &payment.instruction_id,
            participant_id: &payment.participant_id,
            sequence_id: payment.sequence_id,
            idempotency_key: &payment.idempotency_key,
            rail_type: &payment.rail_type,
            payload: &payment.payload,
        };
        let body =
            serde_json::to_vec(&body).map_err(|_| Invalid { message: "payload must be JSON".to_owned() })?;
        self.request(Method::POST, self.target.url(), &payment.idempotency_key, body)
    }

    async fn send(&self, payment: &Payment) -> Answer {
        let request = match self.payment_request(payment) {
            Ok(request) => request,
            Err(invalid) => return not_sent(invalid.message),
        };
        match self.line.exchange(request).await {
            Ok(reply) => self.outcomes.answer(&reply, &self.verdicts),
            Err(Fault::NotSent(message)) => not_sent(message),
            Err(Fault::MayHaveBeenSent(message)) => {
                Answer::Unknown { message, rail: RailAnswer::default(), row_only: false }
            }
        }
    }

    async fn ask(&self, payment: &Payment) -> Inquiry {
        let unsaid = |message| Inquiry::Unsaid { message, rail: RailAnswer::default() };
        let key = &payment.idempotency_key;
        let Some(inquiry) = &self.inquiry else {
            return unsaid("this rail has no inquiry_url".to_owned());
        };
        let request = match inquiry.url(key).and_then(|url| self.request(Method::GET, url, key, Vec::new())) {
            Ok(request) => request,
            Err(invalid) => return unsaid(invalid.message),
        };
        match self.line.exchange(request).await {
            Ok(reply) => self.verdicts.inquiry(&reply),
            Err(Fault::NotSent(message) | Fault::MayHaveBeenSent(message)) => unsaid(message),
        }
    }
}

/// The key as a header: what a server would trim or fold would be another payment's name.
fn key_header(key: &str) -> Result<HeaderValue, Invalid> {
    let fits = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
    match HeaderValue::from_str(key) {
        Ok(value) if fits => Ok(value),
        _ => Err(Invalid {
            message: "idempotency_key must be printable ASCII without spaces, since it travels as a header"
                .to_owned(),
        }),
    }
}

fn not_sent(message: String) -> Answer {
    let reason = Reason { code: NOT_SENT.to_owned(), message: Some(message) };
    Answer::Later { reason, rail: RailAnswer::default(), after: None }
}

impl Rail for HttpRail {
    fn validate(&self, payment: &Payment) -> Result<(), Invalid> {
        key_header(&payment.idempotency_key)?;
        if let Some(inquiry) = &self.inquiry {
            inquiry.url(&payment.idempotency_key)?;
        }
        let (size, limit) = (payment.payload.as_json().len(), self.max_bytes);
        if size > limit {
            let message = format!("payload has {size} bytes, and the rail takes at most {limit} (max_bytes)");
            return Err(Invalid { message });
        }
        money::check(&payment.payload, self.destination)
    }

    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        Box::pin(self.send(payment))
    }

    fn timeout(&self) -> Duration {
        self.line.timeout()
    }

    fn can_be_asked(&self) -> bool {
        self.inquiry.is_some()
    }

    fn inquire<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(self.ask(payment))
    }
}

impl fmt::Debug for HttpRail {
    /// The name and the host: paths and queries of banks may hold more than they should.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let host = self.target.url().host_str().map(str::to_owned);
        f.debug_struct("HttpRail").field("name", &self.name).field("host", &host).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_a_rail_nor_its_settings_show_what_is_secret() {
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
