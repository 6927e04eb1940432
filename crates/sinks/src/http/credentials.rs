//! Authenticates requests: the webhook signature, a bearer token, and the headers of the setting `headers`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use symphony_relay::rail::Invalid;

use super::settings::HeaderSetting;
use super::signature::{self, Signer};
use crate::config::SettingError;
use crate::secret::{OneOrMany, Secret, SecretSource};

const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Headers that the settings cannot set, because this crate or the HTTP client sets them.
const RESERVED_HEADERS: [&str; 14] = [
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

/// The settings that name the credentials.
#[derive(Clone, Copy)]
pub(super) struct CredentialSources<'a> {
    pub(super) secret_env: Option<&'a OneOrMany>,
    pub(super) secret_file: Option<&'a OneOrMany>,
    pub(super) bearer_env: Option<&'a String>,
    pub(super) bearer_file: Option<&'a PathBuf>,
    pub(super) headers: &'a BTreeMap<String, HeaderSetting>,
}

/// The headers and signing keys of every request.
pub(super) struct Credentials {
    headers: HeaderMap,
    signer: Signer,
}

impl Credentials {
    /// Reads the secrets. `reserved` says which headers the rail, sink or store sets itself.
    pub(super) fn read(
        settings: CredentialSources<'_>,
        reserved: impl Fn(&HeaderName) -> bool,
    ) -> Result<Self, SettingError> {
        let signer = read_secrets(settings.secret_env, settings.secret_file, ("secret_env", "secret_file"))?;
        let mut headers = HeaderMap::new();
        let bearer = match (settings.bearer_env, settings.bearer_file) {
            (Some(_), Some(_)) => {
                return Err(SettingError::new("bearer_env", "and bearer_file are both set: keep one"));
            }
            (Some(name), None) => Some(("bearer_env", SecretSource::Env(name.clone()))),
            (None, Some(path)) => Some(("bearer_file", SecretSource::File(path.clone()))),
            (None, None) => None,
        };
        if let Some((setting, source)) = bearer {
            let token = source.read(setting)?;
            headers.insert(AUTHORIZATION, secret_header(setting, &format!("Bearer {}", token.expose()))?);
        }
        for (name, value) in settings.headers {
            let setting = format!("headers.{name}");
            let header = HeaderName::from_bytes(name.as_bytes()).map_err(|error| {
                SettingError::new(setting.clone(), "must be the name of a header").with_source(error)
            })?;
            let reserved_here =
                RESERVED_HEADERS.contains(&header.as_str()) || header.as_str().starts_with("webhook-");
            if reserved_here || reserved(&header) || headers.contains_key(&header) {
                return Err(SettingError::new(setting, "is set by Symphony itself: leave it out"));
            }
            let value = match value {
                HeaderSetting::Plain(text) => HeaderValue::from_str(text)
                    .map_err(|error| SettingError::new(setting, "must be printable ASCII").with_source(error))?,
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

    /// Adds the credentials to the headers of a request, signed for this message id and body.
    pub(super) fn add(&self, headers: &mut HeaderMap, id: &str, body: &[u8]) -> Result<(), Invalid> {
        headers.extend(self.headers.clone());
        if self.signer.is_empty() {
            return Ok(());
        }
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
        let invalid = |_| Invalid { message: "the message id must be a valid header value".to_owned() };
        headers.insert(WEBHOOK_ID, HeaderValue::from_str(id).map_err(invalid)?);
        headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(now));
        headers
            .insert(WEBHOOK_SIGNATURE, HeaderValue::from_str(&self.signer.sign(id, now, body)).map_err(invalid)?);
        Ok(())
    }
}

/// Reads the secrets that the settings of these names list.
pub(super) fn read_secrets(
    env: Option<&OneOrMany>,
    file: Option<&OneOrMany>,
    (env_setting, file_setting): (&'static str, &'static str),
) -> Result<Signer, SettingError> {
    let mut signer = Signer::none();
    let from_env = env.into_iter().flat_map(OneOrMany::iter);
    let from_env = from_env.map(|name| (env_setting, SecretSource::Env(name.clone())));
    let from_file = file.into_iter().flat_map(OneOrMany::iter);
    let from_file = from_file.map(|path| (file_setting, SecretSource::File(path.into())));
    for (setting, source) in from_env.chain(from_file) {
        signer
            .add(source.read(setting)?.expose())
            .ok_or_else(|| SettingError::new(setting, signature::SECRET_FORMAT))?;
    }
    Ok(signer)
}

/// Checks the name of the header for the idempotency key.
pub(super) fn idempotency_header(text: &str) -> Result<HeaderName, SettingError> {
    let name = HeaderName::from_bytes(text.as_bytes()).ok();
    let free = |name: &HeaderName| {
        !RESERVED_HEADERS.contains(&name.as_str())
            && !name.as_str().starts_with("webhook-")
            && *name != AUTHORIZATION
    };
    name.filter(free).ok_or_else(|| {
        SettingError::new(
            "idempotency_header",
            "must be the name of a header that carries nothing else, such as \"Idempotency-Key\"",
        )
    })
}

/// A header that `Debug` does not show.
fn secret_header(setting: &str, text: &str) -> Result<HeaderValue, SettingError> {
    let mut value = HeaderValue::from_str(text)
        .map_err(|_| SettingError::new(setting.to_owned(), "must contain one line of printable ASCII"))?;
    value.set_sensitive(true);
    Ok(value)
}
