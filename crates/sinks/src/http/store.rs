//! A metadata store over HTTP(S): one signed PUT per record, to a URL that names the entity.
//!
//! The version is a header. The receiver must compare it, since this side cannot. See `docs/sinks/metadata-http.md`.

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use serde::Deserialize;
use symphony_relay::rail::BoxFuture;
use symphony_relay::store::{Record, Store, Written};

use super::webhook::{StatusClass, WebhookClient, WebhookSettings};
use crate::config::SettingError;
use crate::encoding;

const TYPE_VARIABLE: &str = "{entity_type}";
const ID_VARIABLE: &str = "{entity_id}";
/// Placeholders while the URL is parsed. They consist of unreserved characters, so the parser leaves them as they are.
const TYPE_PLACEHOLDER: &str = "symphony-stands-in-for-a-type";
const ID_PLACEHOLDER: &str = "symphony-stands-in-for-an-id";

const VERSION_HEADER: HeaderName = HeaderName::from_static("symphony-version");
const ENTRY_ID_HEADER: HeaderName = HeaderName::from_static("symphony-entry-id");
const IDEMPOTENCY_KEY_HEADER: HeaderName = HeaderName::from_static("idempotency-key");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
}

/// A store that is an HTTP(S) endpoint.
pub(crate) struct HttpStore {
    template: UrlTemplate,
    webhook: WebhookClient,
}

impl HttpStore {
    pub(crate) fn build(name: &str, settings: toml::Table) -> Result<Self, SettingError> {
        let (common, own): (WebhookSettings, Settings) = WebhookSettings::read(settings)?;
        let (template, https) = UrlTemplate::parse(&own.url, &common)?;
        let reserved =
            |header: &HeaderName| [VERSION_HEADER, ENTRY_ID_HEADER, IDEMPOTENCY_KEY_HEADER].contains(header);
        Ok(Self { template, webhook: WebhookClient::new(&format!("store {name}"), &common, https, reserved)? })
    }

    fn request(&self, record: &Record) -> Result<Request, String> {
        self.webhook.check_size(record.metadata.len())?;
        let id =
            HeaderValue::from_str(&record.entry_id).map_err(|_| "its id must fit into a header".to_owned())?;
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (VERSION_HEADER, HeaderValue::from(record.version)),
            (ENTRY_ID_HEADER, id.clone()),
            (IDEMPOTENCY_KEY_HEADER, id),
        ]);
        let (url, body) = (self.template.url(record)?, record.metadata.clone().into_bytes());
        self.webhook.request(Method::PUT, url, headers, &record.entry_id, body)
    }

    async fn put(&self, record: &Record) -> Written {
        let request = match self.request(record) {
            Ok(request) => request,
            Err(why) => return Written::Refused(why),
        };
        match self.webhook.send(request).await {
            Ok(status) => written(status),
            Err(why) => Written::Failed(why),
        }
    }
}

/// The outcome of a write, by the receiver's status.
fn written(status: u16) -> Written {
    // Conflict or failed precondition: the receiver holds a later version.
    if matches!(status, 409 | 412) {
        return Written::Superseded;
    }
    match StatusClass::of(status) {
        StatusClass::Accepted => Written::Stored,
        StatusClass::Retryable(why) => Written::Failed(why),
        StatusClass::Refused(why) => Written::Refused(why),
    }
}

impl Store for HttpStore {
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written> {
        Box::pin(self.put(record))
    }

    fn close(&self) -> BoxFuture<'_, ()> {
        Box::pin(async {})
    }
}

/// A URL with a variable for the type and one for the id of an entity, in the parser's spelling.
struct UrlTemplate {
    before: String,
    between: String,
    after: String,
    /// Whether the id comes before the type.
    id_first: bool,
}

impl UrlTemplate {
    /// The template, and whether it is https.
    fn parse(text: &str, common: &WebhookSettings) -> Result<(Self, bool), SettingError> {
        let has_placeholder = text.contains(TYPE_PLACEHOLDER) || text.contains(ID_PLACEHOLDER);
        let target =
            common.target(&text.replace(TYPE_VARIABLE, TYPE_PLACEHOLDER).replace(ID_VARIABLE, ID_PLACEHOLDER))?;
        let once = |variable: &str| text.matches(variable).count() == 1;
        let template = (!has_placeholder && once(TYPE_VARIABLE) && once(ID_VARIABLE))
            .then(|| Self::split(&target.url()))
            .flatten();
        let template = template.ok_or_else(|| {
            let text = format!(
                "must contain {TYPE_VARIABLE} and {ID_VARIABLE} once each, in its path, with a slash between them"
            );
            SettingError::new("url", text)
        })?;
        Ok((template, target.is_https()))
    }

    /// Splits a URL at its placeholders, if they are in its path.
    fn split(url: &Url) -> Option<Self> {
        let (kind, id) = (url.path().find(TYPE_PLACEHOLDER)?, url.path().find(ID_PLACEHOLDER)?);
        let id_first = id < kind;
        let (first, second) =
            if id_first { (ID_PLACEHOLDER, TYPE_PLACEHOLDER) } else { (TYPE_PLACEHOLDER, ID_PLACEHOLDER) };
        let (before, rest) = url.as_str().split_once(first)?;
        let (between, after) = rest.split_once(second)?;
        // Encoded values hold no slash: with one between the two, no two entities share a URL.
        let [before, between, after] = [before, between, after].map(str::to_owned);
        between.contains('/').then_some(Self { before, between, after, id_first })
    }

    /// The URL of an entity.
    fn url(&self, record: &Record) -> Result<Url, String> {
        let (kind, id) = (encoding::url_segment(&record.entity_type), encoding::url_segment(&record.entity_id));
        let (first, second) = if self.id_first { (id, kind) } else { (kind, id) };
        let Self { before, between, after, .. } = self;
        let text = format!("{before}{first}{between}{second}{after}");
        // Dot segments would lead to another path, encoded or not: a URL that the parser changes is refused.
        let url = Url::parse(&text).ok().filter(|url| url.as_str() == text);
        let named = !record.entity_type.is_empty() && !record.entity_id.is_empty();
        url.filter(|_| named).ok_or_else(|| {
            "its entity_type and entity_id must be more than . or .., since they are part of the path".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn template(url: &str) -> Result<UrlTemplate, String> {
        let settings = toml::Table::from_iter([("url".to_owned(), url.into())]);
        let (common, own): (WebhookSettings, Settings) = WebhookSettings::read(settings).unwrap();
        let parsed = UrlTemplate::parse(&own.url, &common);
        parsed.map(|(template, _)| template).map_err(|error| error.for_store("s").to_string())
    }

    fn record(entity_type: &str, entity_id: &str) -> Record {
        Record {
            entry_id: "00000000-0000-4000-8000-000000000000".to_owned(),
            entity_type: entity_type.to_owned(),
            entity_id: entity_id.to_owned(),
            version: 1,
            metadata: "{}".to_owned(),
        }
    }

    #[test]
    fn a_status_decides_between_stored_superseded_refused_and_failed() {
        for status in [200, 201, 202, 204] {
            assert_eq!(written(status), Written::Stored);
        }
        for status in [409, 412] {
            assert_eq!(written(status), Written::Superseded);
        }
        for status in [400, 401, 403, 404, 410, 413, 422] {
            assert!(matches!(written(status), Written::Refused(_)), "{status}");
        }
        for status in [301, 307, 408, 425, 429, 500, 502, 503] {
            assert!(matches!(written(status), Written::Failed(_)), "{status}");
        }
    }

    #[test]
    fn a_template_has_one_variable_for_the_type_and_one_for_the_id() {
        assert!(template("https://store.example/v1/{entity_type}/{entity_id}").is_ok());
        assert!(template("https://store.example/v1/{entity_id}/of-{entity_type}?a=1").is_ok());
        for url in [
            "https://store.example/",
            "https://store.example/{entity_id}",
            "https://store.example/{entity_type}",
            "https://store.example/{entity_type}-{entity_id}",
            "https://store.example/{entity_type}{entity_id}",
            "https://store.example/{entity_type}/{entity_id}/{entity_id}",
            "https://store.example/{entity_type}?id={entity_id}",
            "https://{entity_type}/{entity_id}",
            "https://store.example/symphony-stands-in-for-a-type/{entity_type}/{entity_id}",
        ] {
            assert!(template(url).err().unwrap().starts_with("store s: url: must "), "{url}");
        }
    }

    #[test]
    fn dot_segments_are_refused() {
        let alone = template("https://store.example/{entity_type}/{entity_id}").unwrap();
        for (kind, id) in [("order", "."), ("order", ".."), ("..", "7"), ("", "7"), ("order", "")] {
            assert!(alone.url(&record(kind, id)).is_err(), "{kind:?} {id:?}");
        }
        let behind = template("https://store.example/{entity_type}/id-{entity_id}").unwrap();
        assert_eq!(behind.url(&record("order", "..")).unwrap().as_str(), "https://store.example/order/id-..");
        // A value that looks like a placeholder is a value.
        let url = alone.url(&record(ID_PLACEHOLDER, TYPE_PLACEHOLDER)).unwrap();
        assert_eq!(url.path(), format!("/{ID_PLACEHOLDER}/{TYPE_PLACEHOLDER}"));
    }

    proptest! {
        #![proptest_config(crate::proptest_config::proptest_config())]

        #[test]
        fn no_entity_leads_to_another_host_or_to_the_url_of_another_entity(kind in "[^\0]{1,20}", id in "[^\0]{1,40}") {
            let template = template("https://store.example/v1/{entity_type}/{entity_id}").unwrap();
            match template.url(&record(&kind, &id)) {
                Ok(url) => {
                    prop_assert_eq!(url.host_str(), Some("store.example"));
                    prop_assert_eq!((url.query(), url.fragment(), url.port()), (None, None, None));
                    let words: Vec<_> = url.path().strip_prefix("/v1/").unwrap().split('/').collect();
                    let decoded = |word: &str| percent_encoding::percent_decode_str(word).decode_utf8().unwrap().into_owned();
                    prop_assert_eq!(words.into_iter().map(decoded).collect::<Vec<_>>(), [kind, id]);
                }
                Err(_) => prop_assert!([&kind, &id].iter().any(|word| matches!(word.as_str(), "." | ".."))),
            }
        }
    }
}
