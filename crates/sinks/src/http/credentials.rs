//! Authenticates requests: a bearer token, the headers of the setting `headers`, and signatures over what is sent.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use reqwest::Request;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use symphony_relay::rail::Invalid;

use super::http_signature::{self, HttpSignatureSettings, HttpSigner};
use super::jws::{JwsSettings, JwsSigner};
use super::reloadable::Reloadable;
use super::settings::HeaderSetting;
use super::signature::{self, Signer};
use crate::config::SettingError;
use crate::secret::{self, OneOrMany, Secret, SecretSource};

pub(super) const WEBHOOK_ID: HeaderName = HeaderName::from_static("webhook-id");
pub(super) const WEBHOOK_TIMESTAMP: HeaderName = HeaderName::from_static("webhook-timestamp");
pub(super) const WEBHOOK_SIGNATURE: HeaderName = HeaderName::from_static("webhook-signature");

/// Headers that the settings cannot set, because this crate or the HTTP client sets them.
const RESERVED_HEADERS: [&str; 15] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "expect",
    "host",
    "symphony-sequence-id",
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
#[derive(Clone, Default)]
pub(super) struct CredentialSources {
    pub(super) secret_env: Option<OneOrMany>,
    pub(super) secret_file: Option<OneOrMany>,
    pub(super) bearer_env: Option<String>,
    pub(super) bearer_file: Option<PathBuf>,
    pub(super) headers: BTreeMap<String, HeaderSetting>,
    pub(super) jws: Option<JwsSettings>,
    pub(super) http_signature: Option<HttpSignatureSettings>,
}

impl CredentialSources {
    /// The files to watch.
    fn files(&self) -> Vec<PathBuf> {
        let secrets = self.secret_file.iter().flat_map(OneOrMany::iter).map(PathBuf::from);
        let headers = self.headers.values().filter_map(|value| match value {
            HeaderSetting::From(SecretSource::File(path)) => Some(path.clone()),
            _ => None,
        });
        let keys = self.jws.iter().map(|jws| &jws.key_file);
        let keys = keys.chain(self.http_signature.iter().map(|signature| &signature.key_file));
        secrets.chain(self.bearer_file.clone()).chain(headers).chain(keys.cloned()).collect()
    }
}

/// The headers and signing keys of every request.
struct Loaded {
    headers: HeaderMap,
    signer: Signer,
    jws: Option<(HeaderName, JwsSigner)>,
    http_signer: Option<HttpSigner>,
}

/// The credentials, which follow their files.
pub(super) struct Credentials(Reloadable<Loaded>);

impl Credentials {
    /// Reads the secrets. `owner` is whose they are, for the log. `reserved` says which headers the rail, sink or store sets
    /// itself.
    pub(super) fn read(
        owner: &str,
        settings: CredentialSources,
        reserved: impl Fn(&HeaderName) -> bool + Send + Sync + 'static,
    ) -> Result<Self, SettingError> {
        Reloadable::new(owner, settings.files(), move || load(&settings, &reserved)).map(Self)
    }

    /// Adds the credentials to a request, which is complete but for them: signatures cover the bytes that are sent.
    pub(super) fn add(&self, request: &mut Request, id: &str) -> Result<(), Invalid> {
        let loaded = self.0.current();
        let invalid = |message: &str| Invalid { message: message.to_owned() };
        let body = request.body().and_then(|body| body.as_bytes()).unwrap_or_default().to_vec();
        let headers = request.headers_mut();
        headers.extend(loaded.headers.clone());
        if let Some((name, jws)) = loaded.jws.as_ref().filter(|_| !body.is_empty()) {
            let mut signature = jws.sign(&body).ok_or_else(|| invalid("the request cannot be signed"))?;
            signature.set_sensitive(true);
            headers.insert(name.clone(), signature);
        }
        if !loaded.signer.is_empty() {
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
            sign(&loaded.signer, headers, id, now, &body)?;
        }
        if let Some(signer) = &loaded.http_signer {
            signer.sign(request).map_err(|message| Invalid { message })?;
        }
        Ok(())
    }

    /// Whether requests have the signature of webhooks.
    pub(super) fn is_signed(&self) -> bool {
        !self.0.current().signer.is_empty()
    }

    /// Signs as a webhook of this time, in seconds since 1970.
    pub(super) fn sign(&self, headers: &mut HeaderMap, id: &str, at: u64, body: &[u8]) -> Result<(), Invalid> {
        sign(&self.0.current().signer, headers, id, at, body)
    }

    #[cfg(test)]
    pub(super) fn headers(&self) -> HeaderMap {
        self.0.current().headers.clone()
    }
}

fn sign(signer: &Signer, headers: &mut HeaderMap, id: &str, at: u64, body: &[u8]) -> Result<(), Invalid> {
    let invalid = |_| Invalid { message: "the message id must be a valid header value".to_owned() };
    headers.insert(WEBHOOK_ID, HeaderValue::from_str(id).map_err(invalid)?);
    headers.insert(WEBHOOK_TIMESTAMP, HeaderValue::from(at));
    let mut signature = HeaderValue::from_str(&signer.sign(id, at, body)).map_err(invalid)?;
    signature.set_sensitive(true);
    headers.insert(WEBHOOK_SIGNATURE, signature);
    Ok(())
}

fn load(settings: &CredentialSources, reserved: impl Fn(&HeaderName) -> bool) -> Result<Loaded, SettingError> {
    let signer =
        read_secrets(settings.secret_env.as_ref(), settings.secret_file.as_ref(), ("secret_env", "secret_file"))?;

    let jws = match &settings.jws {
        Some(jws) => Some((header_name("jws.header", &jws.header, &reserved)?, JwsSigner::read(jws)?)),
        None => None,
    };
    let http_signer = settings.http_signature.as_ref().map(HttpSigner::read).transpose()?;

    let mut headers = HeaderMap::new();
    let bearer =
        secret::from_env_or_file("bearer_env", &settings.bearer_env, "bearer_file", &settings.bearer_file)?;
    if let Some(token) = bearer {
        let setting = if settings.bearer_env.is_some() { "bearer_env" } else { "bearer_file" };
        headers.insert(AUTHORIZATION, secret_header(setting, &format!("Bearer {}", token.expose()))?);
    }
    for (name, value) in &settings.headers {
        let setting = format!("headers.{name}");
        let taken = |header: &HeaderName| {
            reserved(header)
                || headers.contains_key(header)
                || jws.as_ref().is_some_and(|(own, _)| own == header)
                || http_signer.is_some() && http_signature::HEADERS.contains(&header.as_str())
        };
        let header = header_name(&setting, name, taken)?;
        let value = match value {
            // The rail renders it for each payment.
            HeaderSetting::Template(_) => continue,
            HeaderSetting::Plain(text) => HeaderValue::from_str(text)
                .map_err(|error| SettingError::new(setting, "must be printable ASCII").with_source(error))?,
            HeaderSetting::From(source) => {
                let secret: Secret = source.read(&setting)?;
                secret_header(&setting, secret.expose())?
            }
        };
        headers.insert(header, value);
    }
    Ok(Loaded { headers, signer, jws, http_signer })
}

/// Checks the name of a header of the setting `headers`. `reserved` says which further headers are taken.
pub(super) fn header_name(
    setting: &str,
    name: &str,
    reserved: impl Fn(&HeaderName) -> bool,
) -> Result<HeaderName, SettingError> {
    let header = HeaderName::from_bytes(name.as_bytes()).map_err(|error| {
        SettingError::new(setting.to_owned(), "must be the name of a header").with_source(error)
    })?;
    if RESERVED_HEADERS.contains(&header.as_str()) || header.as_str().starts_with("webhook-") || reserved(&header)
    {
        return Err(SettingError::new(setting.to_owned(), "is set by Symphony itself: leave it out"));
    }
    Ok(header)
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
