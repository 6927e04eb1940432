//! The settings of an HTTP rail, with their defaults and limits. A test compares them with `docs/sinks/http.md`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::body::BodySetting;
use super::callback;
use super::client::Limits;
use super::credentials::CredentialSources;
use super::http_signature::HttpSignatureSettings;
use super::inquiry::InquiryResult;
use super::jws::JwsSettings;
use super::oauth::OauthSettings;
use super::outcome::{AnswerBody, ResponseClass};
use super::response::{FieldPath, ResponseFields};
use super::shape::{PaymentMethod, ShapeSettings};
use crate::config::{self, SettingError, duration, optional_duration};
use crate::money::Destination;
use crate::secret::{OneOrMany, SecretSource};
use crate::tls::TlsFiles;

/// The largest value of `timeout`: a lease cannot be renewed for ever.
const MAX_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest retry delay that the database accepts.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30 * 24 * 3600);
/// The largest value of `answer_limit_bytes` and of `max_bytes`: both are held in memory.
const MAX_BODY_BYTES: usize = 16 * 1024 * 1024;

/// The settings of an HTTP rail.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(super) url: String,
    pub(super) inquiry_url: Option<String>,
    pub(super) endpoint: Option<String>,
    #[serde(default)]
    pub(super) destination: Destination,

    #[serde(default)]
    pub(super) method: PaymentMethod,
    #[serde(default)]
    pub(super) body: BodySetting,
    #[serde(default)]
    pub(super) query: BTreeMap<String, String>,
    pub(super) sample_file: Option<PathBuf>,

    #[serde(default)]
    pub(super) allow_http: bool,
    #[serde(default)]
    pub(super) allow_private: Vec<String>,

    #[serde(default = "config::seconds::<30>", deserialize_with = "duration")]
    pub(super) timeout: Duration,
    #[serde(default = "config::seconds::<5>", deserialize_with = "duration")]
    pub(super) connect_timeout: Duration,
    #[serde(default, deserialize_with = "optional_duration")]
    pub(super) idle_timeout: Option<Duration>,
    #[serde(default = "idle_connections")]
    pub(super) idle_connections: usize,
    #[serde(default = "max_bytes")]
    pub(super) max_bytes: usize,
    #[serde(default = "answer_limit_bytes")]
    pub(super) answer_limit_bytes: usize,
    #[serde(default = "config::seconds::<3600>", deserialize_with = "duration")]
    pub(super) retry_after_cap: Duration,

    #[serde(default = "idempotency_header")]
    pub(super) idempotency_header: String,
    pub(super) secret_env: Option<OneOrMany>,
    pub(super) secret_file: Option<OneOrMany>,
    pub(super) bearer_env: Option<String>,
    pub(super) bearer_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, HeaderSetting>,
    pub(super) oauth: Option<OauthSettings>,
    pub(super) jws: Option<JwsSettings>,
    pub(super) http_signature: Option<HttpSignatureSettings>,

    pub(super) root_ca_file: Option<PathBuf>,
    #[serde(default = "config::enabled")]
    pub(super) system_roots: bool,
    pub(super) client_certificate_file: Option<PathBuf>,
    pub(super) client_key_file: Option<PathBuf>,

    #[serde(default = "reference_key")]
    reference_key: String,
    #[serde(default = "code_key")]
    code_key: String,
    #[serde(default = "status_key")]
    status_key: String,
    #[serde(default)]
    pub(super) answer_body: AnswerBody,
    #[serde(default)]
    pub(super) outcomes: BTreeMap<String, ResponseClass>,
    #[serde(default)]
    pub(super) inquiry: BTreeMap<String, InquiryResult>,
    pub(super) callback: Option<callback::Settings>,
}

/// The value of a header of the setting `headers`.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    untagged,
    expecting = "a text that is no secret, { env = \"NAME\" }, { file = \"/path\" } or { template = \"…\" }"
)]
pub(super) enum HeaderSetting {
    /// Written in the settings. Not for secrets.
    Plain(String),
    /// From a file or an environment variable.
    From(SecretSource),
    /// From the payment, on rails.
    Template(HeaderTemplate),
}

/// A header from a template. An enum, because serde reads a struct from a list too.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
pub(super) enum HeaderTemplate {
    /// The template.
    Template(String),
}

impl Settings {
    /// Checks the limits of each setting, and of settings against each other.
    pub(super) fn check_limits(&self) -> Result<(), SettingError> {
        let limit =
            |setting, ok: bool, text: &str| if ok { Ok(()) } else { Err(SettingError::new(setting, text)) };
        let in_range = !self.timeout.is_zero() && self.timeout <= MAX_TIMEOUT;
        let name = |name: &String| {
            (1..=100).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#')
        };
        limit(
            "endpoint",
            self.endpoint.as_ref().is_none_or(name),
            "must have 1 to 100 printable ASCII characters, without blanks and #",
        )?;
        limit("timeout", in_range, "must be above zero and at most \"10m\"")?;
        // Otherwise a connection that timed out would count as a request that may have arrived.
        let shorter = !self.connect_timeout.is_zero() && self.connect_timeout < self.timeout;
        limit("connect_timeout", shorter, "must be above zero and shorter than timeout")?;
        limit("retry_after_cap", self.retry_after_cap <= MAX_RETRY_DELAY, "must be at most \"720h\"")?;
        let idle = self.idle_timeout.is_none_or(|idle| !idle.is_zero() && idle <= MAX_TIMEOUT);
        limit(
            "idle_timeout",
            idle,
            "must be above zero and at most \"10m\"; leave it out to use a new connection for each request",
        )?;
        limit("idle_connections", (1..=10_000).contains(&self.idle_connections), "must be from 1 to 10000")?;
        let answer = (1..=MAX_BODY_BYTES).contains(&self.answer_limit_bytes);
        limit("answer_limit_bytes", answer, "must be from 1 to 16777216")?;
        limit("max_bytes", (1..=MAX_BODY_BYTES).contains(&self.max_bytes), "must be from 1 to 16777216")
    }

    /// Whether the outcome of a payment that the bank has accepted can be learnt.
    pub(super) fn can_be_confirmed(&self) -> bool {
        self.inquiry_url.is_some() || self.callback.is_some()
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            idle_timeout: self.idle_timeout,
            idle_connections: self.idle_connections,
            max_response_bytes: self.answer_limit_bytes,
            retry_after_cap: self.retry_after_cap,
        }
    }

    pub(super) fn tls_files(&self) -> TlsFiles {
        TlsFiles {
            root_ca_file: self.root_ca_file.clone(),
            system_roots: self.system_roots,
            client_certificate_file: self.client_certificate_file.clone(),
            client_key_file: self.client_key_file.clone(),
        }
    }

    pub(super) fn credential_sources(&self) -> CredentialSources {
        CredentialSources {
            secret_env: self.secret_env.clone(),
            secret_file: self.secret_file.clone(),
            bearer_env: self.bearer_env.clone(),
            bearer_file: self.bearer_file.clone(),
            headers: self.headers.clone(),
            jws: self.jws.clone(),
            http_signature: self.http_signature.clone(),
        }
    }

    pub(super) fn shape(&self) -> ShapeSettings<'_> {
        ShapeSettings { method: self.method, body: &self.body, query: &self.query, headers: &self.headers }
    }

    /// The fields of a response that the settings name.
    pub(super) fn response_fields(&self) -> Result<ResponseFields, SettingError> {
        Ok(ResponseFields {
            reference: FieldPath::parse("reference_key", &self.reference_key)?,
            code: FieldPath::parse("code_key", &self.code_key)?,
            status: FieldPath::parse("status_key", &self.status_key)?,
        })
    }
}

fn idle_connections() -> usize {
    64
}

fn max_bytes() -> usize {
    1024 * 1024
}

fn answer_limit_bytes() -> usize {
    64 * 1024
}

fn idempotency_header() -> String {
    "Idempotency-Key".to_owned()
}

fn reference_key() -> String {
    "reference".to_owned()
}

fn code_key() -> String {
    "code".to_owned()
}

fn status_key() -> String {
    "status".to_owned()
}
