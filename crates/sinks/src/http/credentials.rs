//! Who we say we are: the signature, a bearer token, and headers that a bank wants to see.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use symphony_relay::rail::Invalid;

use super::settings::HeaderSetting;
use super::signature::{self, Signer};
use crate::config::Problem;
use crate::secret::{OneOrMany, Secret, Source};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Set by ourselves or by the connection: a second opinion in the settings would only break things.
const OURS: [&str; 14] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "te",
    "traceparent",
    "tracestate",
    "trailer",
    "transfer-encoding",
    "upgrade",
    "user-agent",
    "accept-encoding",
];

/// Where the settings say that they are found.
#[derive(Clone, Copy)]
pub(super) struct Sources<'a> {
    pub(super) secret_env: Option<&'a OneOrMany>,
    pub(super) secret_file: Option<&'a OneOrMany>,
    pub(super) bearer_env: Option<&'a String>,
    pub(super) bearer_file: Option<&'a PathBuf>,
    pub(super) headers: &'a BTreeMap<String, HeaderSetting>,
}

/// What every request carries beside its body.
pub(super) struct Credentials {
    headers: HeaderMap,
    signer: Signer,
}

impl Credentials {
    /// Reads them. `taken` says which headers carry something else already.
    pub(super) fn read(settings: Sources<'_>, taken: impl Fn(&HeaderName) -> bool) -> Result<Self, Problem> {
        let mut signer = Signer::none();
        let env = |name: &String| ("secret_env", Source::Env(name.clone()));
        let file = |path: &String| ("secret_file", Source::File(path.into()));
        let from_env = settings.secret_env.into_iter().flat_map(OneOrMany::iter).map(env);
        let from_file = settings.secret_file.into_iter().flat_map(OneOrMany::iter).map(file);
        for (setting, source) in from_env.chain(from_file) {
            signer.add(source.read(setting)?.expose()).ok_or_else(|| Problem::new(setting, signature::FORM))?;
        }

        let mut headers = HeaderMap::new();
        let bearer = match (settings.bearer_env, settings.bearer_file) {
            (Some(_), Some(_)) => {
                return Err(Problem::new("bearer_env", "and bearer_file are both set: keep one"));
            }
            (Some(name), None) => Some(("bearer_env", Source::Env(name.clone()))),
            (None, Some(path)) => Some(("bearer_file", Source::File(path.clone()))),
            (None, None) => None,
        };
        if let Some((setting, source)) = bearer {
            let token = source.read(setting)?;
            headers.insert(AUTHORIZATION, secret_header(setting, &format!("Bearer {}", token.expose()))?);
        }
        for (name, value) in settings.headers {
            let setting = format!("headers.{name}");
            let header = HeaderName::from_bytes(name.as_bytes())
                .map_err(|error| Problem::new(setting.clone(), "must be the name of a header").because(error))?;
            let ours = OURS.contains(&header.as_str()) || header.as_str().starts_with("webhook-");
            if ours || taken(&header) || headers.contains_key(&header) {
                return Err(Problem::new(setting, "is set by Symphony itself: leave it out"));
            }
            let value = match value {
                HeaderSetting::Plain(text) => HeaderValue::from_str(text)
                    .map_err(|error| Problem::new(setting, "must be printable ASCII").because(error))?,
                HeaderSetting::From(source) => {
                    let secret: Secret = source.read(&setting)?;
                    secret_header(&setting, secret.expose())?
                }
            };
            headers.insert(header, value);
        }
        Ok(Self { headers, signer })
    }

    #[cfg(test)]
    pub(super) fn headers(&self) -> &HeaderMap {
        &self.headers
    }

    /// Adds them to a request about this key with this body.
    pub(super) fn add(&self, headers: &mut HeaderMap, key: &str, body: &[u8]) -> Result<(), Invalid> {
        headers.extend(self.headers.clone());
        if self.signer.is_empty() {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let no_header = |_| Invalid { message: "the signature must fit into headers".to_owned() };
        headers.insert(WEBHOOK_ID, HeaderValue::from_str(key).map_err(no_header)?);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(now));
        headers.insert(
            WEBHOOK_SIGNATURE,
            HeaderValue::from_str(&self.signer.sign(key, now, body)).map_err(no_header)?,
        );
        Ok(())
    }
}

/// The name of the header that carries the key.
pub(super) fn idempotency_header(text: &str) -> Result<HeaderName, Problem> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok();
    let free = |name: &HeaderName| {
        !OURS.contains(&name.as_str()) && !name.as_str().starts_with("webhook-") && *name != AUTHORIZATION
    };
    name.filter(free).ok_or_else(|| {
        Problem::new(
            "idempotency_header",
            "must be the name of a header that carries nothing else, such as \"Idempotency-Key\"",
        )
    })
}

/// A header that `Debug` does not show.
fn secret_header(setting: &str, text: &str) -> Result<HeaderValue, Problem> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| Problem::new(setting.to_owned(), "must hold one line of printable ASCII"))?;
    value.set_sensitive(true);
    Ok(value)
}
