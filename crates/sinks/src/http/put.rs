//! Metadata to an HTTP(S) endpoint: one signed PUT per record, to a URL that names the entity.
//!
//! The version goes with it as a header, and the receiver must compare it: nothing here can. `docs/sinks/metadata-http.md` is
//! its manual.

use percent_encoding::utf8_percent_encode;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use reqwest::{Method, Request, Url};
use serde::Deserialize;
use symphony_relay::rail::BoxFuture;
use symphony_relay::store::{Record, Store, Written};

use super::receiver::{Answer, Common, Receiver};
use super::target::KEPT;
use crate::config::Problem;

const TYPE: &str = "{entity_type}";
const ID: &str = "{entity_id}";
/// These stand in for them while a template is read; no URL parser changes them.
const TYPE_STAND_IN: &str = "symphony-stands-in-for-a-type";
const ID_STAND_IN: &str = "symphony-stands-in-for-an-id";

const VERSION: HeaderName = HeaderName::from_static("symphony-version");
const ENTRY_ID: HeaderName = HeaderName::from_static("symphony-entry-id");
const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Settings {
    url: String,
}

/// A store that is an HTTP(S) endpoint.
pub(crate) struct HttpStore {
    template: Template,
    receiver: Receiver,
}

impl HttpStore {
    pub(crate) fn build(settings: toml::Table) -> Result<Self, Problem> {
        let (common, own): (Common, Settings) = Common::read(settings)?;
        let (template, https) = Template::parse(&own.url, &common)?;
        let taken = |header: &HeaderName| [VERSION, ENTRY_ID, IDEMPOTENCY_KEY].contains(header);
        Ok(Self { template, receiver: Receiver::new(&common, https, taken)? })
    }

    fn request(&self, record: &Record) -> Result<Request, String> {
        self.receiver.check(record.metadata.len())?;
        let id =
            HeaderValue::from_str(&record.entry_id).map_err(|_| "its id must fit into a header".to_owned())?;
        let headers = HeaderMap::from_iter([
            (CONTENT_TYPE, HeaderValue::from_static("application/json")),
            (VERSION, HeaderValue::from(record.version)),
            (ENTRY_ID, id.clone()),
            (IDEMPOTENCY_KEY, id),
        ]);
        let (url, body) = (self.template.url(record)?, record.metadata.clone().into_bytes());
        self.receiver.request(Method::PUT, url, headers, &record.entry_id, body)
    }

    async fn put(&self, record: &Record) -> Written {
        let request = match self.request(record) {
            Ok(request) => request,
            Err(why) => return Written::Refused(why),
        };
        match self.receiver.send(request).await {
            Answer::Status(status) => meaning(status),
            Answer::None(why) => Written::Failed(why),
        }
    }
}

/// What a status means for a record, which can always be sent again.
fn meaning(status: u16) -> Written {
    match status {
        200..=299 => Written::Stored,
        // In conflict with what is there, or behind it: a later version.
        409 | 412 => Written::Superseded,
        // Too early, too slow, too many: the same may well be taken later.
        408 | 425 | 429 => Written::Failed(format!("the receiver answered HTTP {status}")),
        400..=499 => Written::Refused(format!("the receiver answered HTTP {status}")),
        _ => Written::Failed(format!("the receiver answered HTTP {status}")),
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

/// A URL with a place for the type and one for the id of an entity, as the parser writes it.
struct Template {
    before: String,
    between: String,
    after: String,
    /// Whether the id comes before the type.
    id_first: bool,
}

impl Template {
    /// The template, and whether TLS leads there.
    fn parse(text: &str, common: &Common) -> Result<(Self, bool), Problem> {
        let foreign = text.contains(TYPE_STAND_IN) || text.contains(ID_STAND_IN);
        let target = common.target(&text.replace(TYPE, TYPE_STAND_IN).replace(ID, ID_STAND_IN))?;
        let once = |place: &str| text.matches(place).count() == 1;
        let template = (!foreign && once(TYPE) && once(ID)).then(|| Self::split(&target.url())).flatten();
        let template = template.ok_or_else(|| {
            let text = format!("must hold {TYPE} and {ID} once each, in its path, with a slash between them");
            Problem::new("url", text)
        })?;
        Ok((template, target.is_https()))
    }

    /// Takes a URL apart at its stand-ins, if they are in its path.
    fn split(url: &Url) -> Option<Self> {
        let (kind, id) = (url.path().find(TYPE_STAND_IN)?, url.path().find(ID_STAND_IN)?);
        let id_first = id < kind;
        let (first, second) = if id_first { (ID_STAND_IN, TYPE_STAND_IN) } else { (TYPE_STAND_IN, ID_STAND_IN) };
        let (before, rest) = url.as_str().split_once(first)?;
        let (between, after) = rest.split_once(second)?;
        // What is encoded holds no slash: with one in between, no two entities have the same URL.
        let [before, between, after] = [before, between, after].map(str::to_owned);
        between.contains('/').then_some(Self { before, between, after, id_first })
    }

    /// The URL of an entity.
    fn url(&self, record: &Record) -> Result<Url, String> {
        let encode = |word: &str| utf8_percent_encode(word, KEPT).to_string();
        let (kind, id) = (encode(&record.entity_type), encode(&record.entity_id));
        let (first, second) = if self.id_first { (id, kind) } else { (kind, id) };
        let Self { before, between, after, .. } = self;
        let text = format!("{before}{first}{between}{second}{after}");
        // Dots alone would lead to another path, encoded or not: what the parser changes is not what was meant.
        let url = Url::parse(&text).ok().filter(|url| url.as_str() == text);
        let named = !record.entity_type.is_empty() && !record.entity_id.is_empty();
        url.filter(|_| named).ok_or_else(|| {
            "its entity_type and entity_id must be more than . or .., since they travel in a path".to_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn template(url: &str) -> Result<Template, String> {
        let settings = toml::Table::from_iter([("url".to_owned(), url.into())]);
        let (common, own): (Common, Settings) = Common::read(settings).unwrap();
        let parsed = Template::parse(&own.url, &common);
        parsed.map(|(template, _)| template).map_err(|problem| problem.of_store("s").to_string())
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
    fn a_status_says_whether_the_receiver_has_it_or_something_later() {
        for status in [200, 201, 202, 204] {
            assert_eq!(meaning(status), Written::Stored);
        }
        for status in [409, 412] {
            assert_eq!(meaning(status), Written::Superseded);
        }
        for status in [400, 401, 403, 404, 410, 413, 422] {
            assert!(matches!(meaning(status), Written::Refused(_)), "{status}");
        }
        for status in [301, 307, 408, 425, 429, 500, 502, 503] {
            assert!(matches!(meaning(status), Written::Failed(_)), "{status}");
        }
    }

    #[test]
    fn a_template_has_a_place_for_the_type_and_one_for_the_id() {
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
    fn dots_alone_are_refused_where_they_would_be_a_part_of_the_path() {
        let alone = template("https://store.example/{entity_type}/{entity_id}").unwrap();
        for (kind, id) in [("order", "."), ("order", ".."), ("..", "7"), ("", "7"), ("order", "")] {
            assert!(alone.url(&record(kind, id)).is_err(), "{kind:?} {id:?}");
        }
        let behind = template("https://store.example/{entity_type}/id-{entity_id}").unwrap();
        assert_eq!(behind.url(&record("order", "..")).unwrap().as_str(), "https://store.example/order/id-..");
        // A value that looks like a place is a value.
        let url = alone.url(&record(ID_STAND_IN, TYPE_STAND_IN)).unwrap();
        assert_eq!(url.path(), format!("/{ID_STAND_IN}/{TYPE_STAND_IN}"));
    }

    proptest! {
        #![proptest_config(crate::cases::cases())]

        #[test]
        fn no_entity_leads_elsewhere_or_to_another(kind in "[^\0]{1,20}", id in "[^\0]{1,40}") {
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
