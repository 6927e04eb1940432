//! Events as CloudEvents 1.0 over HTTP(S): one signed POST each, in the binary or the structured mode.
//!
//! It shares line, addresses and credentials with the rail and has nothing else in common with it: an event may be
//! sent again, so what is unknown is simply a failure. `docs/sinks/cloudevents.md` is its manual.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use percent_encoding::utf8_percent_encode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use symphony_relay::rail::BoxFuture;
use symphony_relay::sink::{Message, Published, Sink};

use super::address::Allowed;
use super::credentials::{Credentials, Sources};
use super::line::{Fault, Limits, Line};
use super::settings::HeaderSetting;
use super::target::{KEPT, Target};
use crate::config::{Problem, time};
use crate::event::cloudevent;
use crate::secret::OneOrMany;
use crate::tls;

const PLACE: &str = "{destination}";
/// Stands in for a destination while a template is read; no URL parser changes it.
const STAND_IN: &str = "symphony-stands-in-for-a-destination";
const STRUCTURED: &str = "application/cloudevents+json; charset=UTF-8";
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
const LARGEST: usize = 64 * 1024 * 1024;
/// Nobody reads the answer; it is read so that the connection can be used again.
const ANSWER_LIMIT: usize = 64 * 1024;
const IDLE: Duration = Duration::from_secs(30);
const IDLE_CONNECTIONS: usize = 64;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    url: String,
    #[serde(default)]
    mode: Mode,
    #[serde(default = "seconds::<10>", deserialize_with = "time")]
    timeout: Duration,
    #[serde(default = "seconds::<5>", deserialize_with = "time")]
    connect_timeout: Duration,
    #[serde(default = "one_mebibyte")]
    max_bytes: usize,
    #[serde(default)]
    allow_plain: bool,
    #[serde(default)]
    allow_private: Vec<String>,

    secret_env: Option<OneOrMany>,
    secret_file: Option<OneOrMany>,
    bearer_env: Option<String>,
    bearer_file: Option<PathBuf>,
    #[serde(default)]
    headers: BTreeMap<String, HeaderSetting>,

    root_ca_file: Option<PathBuf>,
    #[serde(default = "yes")]
    system_roots: bool,
    client_certificate_file: Option<PathBuf>,
    client_key_file: Option<PathBuf>,
}

/// Where the attributes of an event travel.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Mode {
    /// In headers; the body is the data.
    #[default]
    Binary,
    /// In the body, around the data.
    Structured,
}

/// A sink that is an HTTP(S) endpoint.
pub(crate) struct HttpSink {
    target: Place,
    mode: Mode,
    max_bytes: usize,
    credentials: Credentials,
    line: Line,
}

/// Where events go.
enum Place {
    /// All of them to one URL.
    Fixed(Target),
    /// Each to the URL with its destination in it, as the parser writes it.
    Template(String),
}

impl HttpSink {
    pub(crate) fn build(settings: &Settings) -> Result<Self, Problem> {
        settings.check_limits()?;
        let allowed = Allowed::parse(&settings.allow_private)?;
        let (target, https) = Place::parse(&settings.url, settings.allow_plain, &allowed)?;
        let limits = Limits {
            timeout: settings.timeout,
            connect_timeout: settings.connect_timeout,
            idle_timeout: Some(IDLE),
            idle_connections: IDLE_CONNECTIONS,
            answer_limit: ANSWER_LIMIT,
            retry_after_cap: Duration::MAX,
        };
        let files = tls::Files {
            root_ca_file: settings.root_ca_file.as_deref(),
            system_roots: settings.system_roots,
            client_certificate_file: settings.client_certificate_file.as_deref(),
            client_key_file: settings.client_key_file.as_deref(),
        };
        let sources = Sources {
            secret_env: settings.secret_env.as_ref(),
            secret_file: settings.secret_file.as_ref(),
            bearer_env: settings.bearer_env.as_ref(),
            bearer_file: settings.bearer_file.as_ref(),
            headers: &settings.headers,
        };
        Ok(Self {
            target,
            mode: settings.mode,
            max_bytes: settings.max_bytes,
            credentials: Credentials::read(sources, |header| header.as_str().starts_with("ce-"))?,
            line: Line::new(limits, files, allowed, https)?,
        })
    }

    fn request(&self, message: &Message) -> Result<Request, String> {
        let mut headers = HeaderMap::new();
        let body = match self.mode {
            Mode::Binary => {
                for (name, value) in cloudevent::attributes(message) {
                    headers.insert(header_name(name)?, header_value(&cloudevent::header(&value))?);
                }
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(cloudevent::CONTENT_TYPE));
                message.data.clone().into_bytes()
            }
            Mode::Structured => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(STRUCTURED));
                structured(message)?
            }
        };
        let id = cloudevent::header(&message.id);
        self.credentials.add(&mut headers, &id, &body).map_err(|invalid| invalid.message)?;
        let mut request = Request::new(Method::POST, self.target.url(message)?);
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into());
        Ok(request)
    }

    async fn deliver(&self, message: &Message) -> Published {
        let (size, limit) = (message.data.len(), self.max_bytes);
        if size > limit {
            return Published::Refused(format!(
                "its data has {size} bytes, and this sink takes {limit} (max_bytes)"
            ));
        }
        let request = match self.request(message) {
            Ok(request) => request,
            Err(why) => return Published::Refused(why),
        };
        match self.line.exchange(request).await {
            Ok(reply) => {
                if let Some(after) = reply.retry_after {
                    // The contract of the lane schedules, and nothing else does.
                    tracing::info!(
                        status = reply.status,
                        after_seconds = after.as_secs(),
                        "the receiver asks for a pause"
                    );
                }
                meaning(reply.status)
            }
            Err(Fault::NotSent(why) | Fault::MayHaveBeenSent(why)) => Published::Failed(why),
        }
    }
}

/// What a status means for an event, which can always be sent again.
fn meaning(status: u16) -> Published {
    match status {
        200..=299 => Published::Confirmed { repeat: false },
        // Too early, too slow, too many: the same may well be taken later.
        408 | 425 | 429 => Published::Failed(format!("the receiver answered HTTP {status}")),
        400..=499 => Published::Refused(format!("the receiver answered HTTP {status}")),
        _ => Published::Failed(format!("the receiver answered HTTP {status}")),
    }
}

impl Sink for HttpSink {
    fn publish<'a>(&'a self, message: &'a Message) -> BoxFuture<'a, Published> {
        Box::pin(self.deliver(message))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

impl Place {
    /// The place, and whether TLS leads there.
    fn parse(text: &str, allow_plain: bool, allowed: &Allowed) -> Result<(Self, bool), Problem> {
        let named = |problem: Problem| problem.instead_of("allow_http", "allow_plain");
        let places = text.matches(PLACE).count();
        if places == 0 {
            let target = Target::parse("url", text, allow_plain, allowed).map_err(named)?;
            let https = target.is_https();
            return Ok((Self::Fixed(target), https));
        }
        let whole = text.replace(PLACE, STAND_IN);
        let target = Target::parse("url", &whole, allow_plain, allowed).map_err(named)?;
        let url = target.url();
        if places > 1 || text.contains(STAND_IN) || !url.path().contains(STAND_IN) {
            return Err(Problem::new("url", format!("must hold {PLACE} once, in its path, or not at all")));
        }
        Ok((Self::Template(String::from(url)), target.is_https()))
    }

    fn url(&self, message: &Message) -> Result<Url, String> {
        match self {
            Self::Fixed(target) => Ok(target.url()),
            Self::Template(template) => {
                let encode = |part: &str| utf8_percent_encode(part, KEPT).to_string();
                let path = message.destination.split('/').map(encode).collect::<Vec<_>>().join("/");
                let text = template.replace(STAND_IN, &path);
                // A destination such as ".." would lead to another path: what the parser changes is not what was meant.
                let url = Url::parse(&text).ok().filter(|url| url.as_str() == text);
                url.filter(|_| !message.destination.is_empty()).ok_or_else(|| {
                    "its destination must be a path without . and .., such as orders/created".to_owned()
                })
            }
        }
    }
}

/// An event with its data inside, byte for byte.
#[derive(Serialize)]
struct Envelope<'a> {
    #[serde(flatten)]
    attributes: BTreeMap<&'static str, String>,
    datacontenttype: &'static str,
    data: &'a RawValue,
}

fn structured(message: &Message) -> Result<Vec<u8>, String> {
    let no_json = |_| "its data must be JSON".to_owned();
    let data = serde_json::from_str(&message.data).map_err(no_json)?;
    let attributes = cloudevent::attributes(message).into_iter().collect();
    serde_json::to_vec(&Envelope { attributes, datacontenttype: cloudevent::CONTENT_TYPE, data }).map_err(no_json)
}

fn header_name(attribute: &str) -> Result<HeaderName, String> {
    HeaderName::from_bytes(format!("ce-{attribute}").as_bytes())
        .map_err(|_| "an attribute cannot be a header".to_owned())
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| "an attribute must fit into a header".to_owned())
}

impl Settings {
    /// What no single field can say.
    fn check_limits(&self) -> Result<(), Problem> {
        let limit = |setting, ok: bool, text: &str| if ok { Ok(()) } else { Err(Problem::new(setting, text)) };
        let some = !self.timeout.is_zero() && self.timeout <= LONGEST_TIMEOUT;
        limit("timeout", some, "must be above zero and at most \"10m\"")?;
        let shorter = !self.connect_timeout.is_zero() && self.connect_timeout < self.timeout;
        limit("connect_timeout", shorter, "must be above zero and shorter than timeout")?;
        limit("max_bytes", (1..=LARGEST).contains(&self.max_bytes), "must be from 1 to 67108864")
    }
}

fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
}

fn one_mebibyte() -> usize {
    1024 * 1024
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_the_same_could_be_taken_later() {
        for status in [200, 201, 202, 204] {
            assert_eq!(meaning(status), Published::Confirmed { repeat: false });
        }
        for status in [400, 401, 403, 404, 410, 413, 422] {
            assert!(matches!(meaning(status), Published::Refused(_)), "{status}");
        }
        for status in [301, 307, 408, 425, 429, 500, 502, 503] {
            assert!(matches!(meaning(status), Published::Failed(_)), "{status}");
        }
    }

    fn event(destination: &str) -> Message {
        Message {
            id: "1".to_owned(),
            source: "/shop".to_owned(),
            event_type: "order.paid".to_owned(),
            aggregate_type: "order".to_owned(),
            aggregate_id: "7".to_owned(),
            destination: destination.to_owned(),
            data: "{\"amount\": 1.10}".to_owned(),
        }
    }

    #[test]
    fn a_destination_takes_its_place_in_the_path_and_leads_nowhere_else() {
        let allowed = Allowed::parse(&[]).unwrap();
        let (place, https) = Place::parse("https://in.example/events/{destination}", false, &allowed).unwrap();
        let url = |destination: &str| place.url(&event(destination)).map(String::from);
        assert!(https);
        assert_eq!(url("orders/paid").unwrap(), "https://in.example/events/orders/paid");
        assert_eq!(url("a b?c#d").unwrap(), "https://in.example/events/a%20b%3Fc%23d");
        for destination in ["", "..", "a/../b", "."] {
            assert!(url(destination).is_err(), "{destination}");
        }
        for text in
            ["https://{destination}/", "https://in.example/{destination}/{destination}", "http://in.example/"]
        {
            assert!(Place::parse(text, false, &allowed).is_err(), "{text}");
        }
    }

    #[test]
    fn a_structured_event_holds_its_data_byte_for_byte() {
        let body = String::from_utf8(structured(&event("x")).unwrap()).unwrap();
        assert!(body.contains("\"data\":{\"amount\": 1.10}"), "{body}");
        assert!(body.contains("\"specversion\":\"1.0\"") && body.contains("\"subject\":\"order/7\""), "{body}");
    }
}
