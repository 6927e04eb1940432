//! Events as CloudEvents 1.0 over HTTP(S): one signed POST each, in the binary or the structured mode.
//!
//! It shares line, addresses and credentials with the rail and has nothing else in common with it: an event may be
//! sent again, so what is unknown is simply a failure. `docs/sinks/cloudevents.md` is its manual.

use std::collections::BTreeMap;

use percent_encoding::utf8_percent_encode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use symphony_relay::rail::BoxFuture;
use symphony_relay::sink::{Message, Published, Sink};

use super::receiver::{Answer, Common, Receiver};
use super::target::{KEPT, Target};
use crate::config::Problem;
use crate::event::cloudevent;

const PLACE: &str = "{destination}";
/// Stands in for a destination while a template is read; no URL parser changes it.
const STAND_IN: &str = "symphony-stands-in-for-a-destination";
const STRUCTURED: &str = "application/cloudevents+json; charset=UTF-8";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    #[serde(default)]
    mode: Mode,
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
    receiver: Receiver,
}

/// Where events go.
enum Place {
    /// All of them to one URL.
    Fixed(Target),
    /// Each to the URL with its destination in it, as the parser writes it.
    Template(String),
}

impl HttpSink {
    pub(crate) fn build(settings: toml::Table) -> Result<Self, Problem> {
        let (common, own): (Common, Settings) = Common::read(settings)?;
        let (target, https) = Place::parse(&own.url, &common)?;
        let receiver = Receiver::new(&common, https, |header| header.as_str().starts_with("ce-"))?;
        Ok(Self { target, mode: own.mode, receiver })
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
        self.receiver.request(Method::POST, self.target.url(message)?, headers, &id, body)
    }

    async fn deliver(&self, message: &Message) -> Published {
        let request = self.receiver.check(message.data.len()).and_then(|()| self.request(message));
        let request = match request {
            Ok(request) => request,
            Err(why) => return Published::Refused(why),
        };
        match self.receiver.send(request).await {
            Answer::Status(status) => meaning(status),
            Answer::None(why) => Published::Failed(why),
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
    fn parse(text: &str, common: &Common) -> Result<(Self, bool), Problem> {
        let places = text.matches(PLACE).count();
        if places == 0 {
            let target = common.target(text)?;
            let https = target.is_https();
            return Ok((Self::Fixed(target), https));
        }
        let whole = text.replace(PLACE, STAND_IN);
        let target = common.target(&whole)?;
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
        let (common, Settings { url, .. }) =
            Common::read("url = 'https://in.example/events/{destination}'".parse().unwrap()).unwrap();
        let (place, https) = Place::parse(&url, &common).unwrap();
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
            assert!(Place::parse(text, &common).is_err(), "{text}");
        }
    }

    #[test]
    fn a_structured_event_holds_its_data_byte_for_byte() {
        let body = String::from_utf8(structured(&event("x")).unwrap()).unwrap();
        assert!(body.contains("\"data\":{\"amount\": 1.10}"), "{body}");
        assert!(body.contains("\"specversion\":\"1.0\"") && body.contains("\"subject\":\"order/7\""), "{body}");
    }
}
