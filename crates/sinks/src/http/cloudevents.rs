//! A sink that posts events as CloudEvents 1.0 over HTTP(S), one signed POST each, in binary or structured mode.
//!
//! It shares the HTTP client, address filter and credentials with the rail. Unlike a payment, an event may be sent
//! again: an unknown outcome is a failure. See `docs/sinks/cloudevents.md`.

use std::collections::BTreeMap;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use symphony_relay::rail::BoxFuture;
use symphony_relay::sink::{Message, Published, Sink};

use super::target::Target;
use super::webhook::{StatusClass, WebhookClient, WebhookSettings};
use crate::config::SettingError;
use crate::encoding;
use crate::event::cloudevent;

const DESTINATION_VARIABLE: &str = "{destination}";
/// A placeholder while the URL is parsed. It consists of unreserved characters, so the parser leaves it as it is.
const PLACEHOLDER: &str = "symphony-stands-in-for-a-destination";
const STRUCTURED_CONTENT_TYPE: &str = "application/cloudevents+json; charset=UTF-8";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
    #[serde(default)]
    mode: ContentMode,
}

/// Where the attributes of an event are sent: the content mode of CloudEvents.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum ContentMode {
    /// In headers; the body is the data.
    #[default]
    Binary,
    /// In the body, around the data.
    Structured,
}

/// A sink that is an HTTP(S) endpoint.
pub(crate) struct HttpSink {
    target: EventTarget,
    mode: ContentMode,
    webhook: WebhookClient,
}

/// The URL of each event.
enum EventTarget {
    /// One URL for all events.
    Fixed(Target),
    /// A URL with the event's destination in its path, in the parser's spelling.
    Template(String),
}

impl HttpSink {
    pub(crate) fn build(name: &str, settings: toml::Table) -> Result<Self, SettingError> {
        let (common, own): (WebhookSettings, Settings) = WebhookSettings::read(settings)?;
        let (target, https) = EventTarget::parse(&own.url, &common)?;
        let webhook = WebhookClient::new(&format!("sink {name}"), &common, https, |header| {
            header.as_str().starts_with("ce-")
        })?;
        Ok(Self { target, mode: own.mode, webhook })
    }

    fn request(&self, message: &Message) -> Result<Request, String> {
        let mut headers = HeaderMap::new();
        let body = match self.mode {
            ContentMode::Binary => {
                for (name, value) in cloudevent::attributes(message) {
                    headers.insert(header_name(name)?, header_value(&encoding::header_value(&value))?);
                }
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(cloudevent::CONTENT_TYPE));
                message.data.clone().into_bytes()
            }
            ContentMode::Structured => {
                headers.insert(CONTENT_TYPE, HeaderValue::from_static(STRUCTURED_CONTENT_TYPE));
                structured(message)?
            }
        };
        let id = encoding::header_value(&message.id);
        self.webhook.request(Method::POST, self.target.url(message)?, headers, &id, body)
    }

    async fn deliver(&self, message: &Message) -> Published {
        let request = self.webhook.check_size(message.data.len()).and_then(|()| self.request(message));
        let request = match request {
            Ok(request) => request,
            Err(why) => return Published::Refused(why),
        };
        match self.webhook.send(request).await {
            Ok(status) => published(status),
            Err(why) => Published::Failed(why),
        }
    }
}

/// The outcome of a publication, by the receiver's status.
fn published(status: u16) -> Published {
    match StatusClass::of(status) {
        StatusClass::Accepted => Published::Confirmed { repeat: false },
        StatusClass::Retryable(why) => Published::Failed(why),
        StatusClass::Refused(why) => Published::Refused(why),
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

impl EventTarget {
    /// The target, and whether it is https.
    fn parse(text: &str, common: &WebhookSettings) -> Result<(Self, bool), SettingError> {
        let variables = text.matches(DESTINATION_VARIABLE).count();
        if variables == 0 {
            let target = common.target(text)?;
            let https = target.is_https();
            return Ok((Self::Fixed(target), https));
        }
        let whole = text.replace(DESTINATION_VARIABLE, PLACEHOLDER);
        let target = common.target(&whole)?;
        let url = target.url();
        if variables > 1 || text.contains(PLACEHOLDER) || !url.path().contains(PLACEHOLDER) {
            return Err(SettingError::new(
                "url",
                format!("must contain {DESTINATION_VARIABLE} once, in its path, or not at all"),
            ));
        }
        Ok((Self::Template(String::from(url)), target.is_https()))
    }

    fn url(&self, message: &Message) -> Result<Url, String> {
        match self {
            Self::Fixed(target) => Ok(target.url()),
            Self::Template(template) => {
                let path = message.destination.split('/').map(encoding::url_segment).collect::<Vec<_>>().join("/");
                let text = template.replace(PLACEHOLDER, &path);
                // A destination such as ".." would lead to another path: a URL that the parser changes is refused.
                let url = Url::parse(&text).ok().filter(|url| url.as_str() == text);
                url.filter(|_| !message.destination.is_empty()).ok_or_else(|| {
                    "its destination must be a path without . and .., such as orders/created".to_owned()
                })
            }
        }
    }
}

/// An event in structured mode, with its data byte for byte.
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
        .map_err(|_| "an attribute's name must be a valid header name".to_owned())
}

fn header_value(text: &str) -> Result<HeaderValue, String> {
    HeaderValue::from_str(text).map_err(|_| "an attribute must be a valid header value".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_decides_between_confirmed_refused_and_failed() {
        for status in [200, 201, 202, 204] {
            assert_eq!(published(status), Published::Confirmed { repeat: false });
        }
        for status in [400, 401, 403, 404, 410, 413, 422] {
            assert!(matches!(published(status), Published::Refused(_)), "{status}");
        }
        for status in [301, 307, 408, 425, 429, 500, 502, 503] {
            assert!(matches!(published(status), Published::Failed(_)), "{status}");
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
    fn a_destination_is_part_of_the_path_and_leads_to_no_other_path() {
        let (common, Settings { url, .. }) =
            WebhookSettings::read("url = 'https://in.example/events/{destination}'".parse().unwrap()).unwrap();
        let (target, https) = EventTarget::parse(&url, &common).unwrap();
        let url = |destination: &str| target.url(&event(destination)).map(String::from);
        assert!(https);
        assert_eq!(url("orders/paid").unwrap(), "https://in.example/events/orders/paid");
        assert_eq!(url("a b?c#d").unwrap(), "https://in.example/events/a%20b%3Fc%23d");
        for destination in ["", "..", "a/../b", "."] {
            assert!(url(destination).is_err(), "{destination}");
        }
        for text in
            ["https://{destination}/", "https://in.example/{destination}/{destination}", "http://in.example/"]
        {
            assert!(EventTarget::parse(text, &common).is_err(), "{text}");
        }
    }

    #[test]
    fn a_structured_event_holds_its_data_byte_for_byte() {
        let body = String::from_utf8(structured(&event("x")).unwrap()).unwrap();
        assert!(body.contains("\"data\":{\"amount\": 1.10}"), "{body}");
        assert!(body.contains("\"specversion\":\"1.0\"") && body.contains("\"subject\":\"order/7\""), "{body}");
    }
}
