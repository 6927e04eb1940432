//! Sends signed webhooks: the settings, HTTP client and status classes that the HTTP sink and the HTTP store share.
//!
//! An event or a record may always be sent again. A request that may have arrived is therefore a failure like any
//! other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Method, Request, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::address::Allowed;
use super::client::{self, HttpClient, SendError};
use super::credentials::{CredentialSources, Credentials};
use super::settings::HeaderSetting;
use super::target::Target;
use crate::config::{self, SettingError, duration};
use crate::connection_manager::Limits;
use crate::secret::OneOrMany;
use crate::tls;

/// The body is ignored. It is read so that the connection can be used again.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);
const MAX_IDLE_CONNECTIONS: usize = 64;

/// The settings that the HTTP sink and the HTTP store share.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct WebhookSettings {
    #[serde(default = "config::seconds::<10>", deserialize_with = "duration")]
    timeout: Duration,
    #[serde(default = "config::seconds::<5>", deserialize_with = "duration")]
    connect_timeout: Duration,
    #[serde(default = "default_max_bytes")]
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
    #[serde(default = "config::enabled")]
    system_roots: bool,
    client_certificate_file: Option<PathBuf>,
    client_key_file: Option<PathBuf>,
}

const SETTING_NAMES: [&str; 14] = [
    "timeout",
    "connect_timeout",
    "max_bytes",
    "allow_plain",
    "allow_private",
    "secret_env",
    "secret_file",
    "bearer_env",
    "bearer_file",
    "headers",
    "root_ca_file",
    "system_roots",
    "client_certificate_file",
    "client_key_file",
];

impl WebhookSettings {
    /// Reads the shared settings and the sink's or store's own settings from one table.
    pub(super) fn read<T: DeserializeOwned>(settings: toml::Table) -> Result<(Self, T), SettingError> {
        config::read_both(settings, &SETTING_NAMES, "every receiver")
    }

    /// Checks the URL of the receiver.
    pub(super) fn target(&self, url: &str) -> Result<Target, SettingError> {
        let allowed = Allowed::parse(&self.allow_private)?;
        Target::parse("url", url, self.allow_plain, &allowed)
            .map_err(|error| error.with_name_replaced("allow_http", "allow_plain"))
    }
}

/// A client for one receiver of webhooks.
pub(super) struct WebhookClient {
    limits: Limits,
    credentials: Credentials,
    client: HttpClient,
}

/// The class of a receiver's response.
pub(super) enum StatusClass {
    /// The receiver has it.
    Accepted,
    /// The receiver may take the same request later.
    Retryable(String),
    /// The receiver will not take this request.
    Refused(String),
}

impl StatusClass {
    pub(super) fn of(status: u16) -> Self {
        let text = format!("the receiver answered HTTP {status}");
        match status {
            200..=299 => Self::Accepted,
            // Request timeout, too early, too many requests.
            408 | 425 | 429 => Self::Retryable(text),
            400..=499 => Self::Refused(text),
            _ => Self::Retryable(text),
        }
    }
}

impl WebhookClient {
    /// Builds a client. `owner` is whose it is, for the log; `https` says whether requests use TLS, `reserved` which headers
    /// the sink or store sets itself.
    pub(super) fn new(
        owner: &str,
        common: &WebhookSettings,
        https: bool,
        reserved: impl Fn(&HeaderName) -> bool + Send + Sync + 'static,
    ) -> Result<Self, SettingError> {
        let limits = Limits::new(common.timeout, common.connect_timeout, common.max_bytes)?;
        let client_limits = client::Limits {
            timeout: limits.timeout,
            connect_timeout: limits.connect_timeout,
            idle_timeout: Some(IDLE_TIMEOUT),
            idle_connections: MAX_IDLE_CONNECTIONS,
            max_response_bytes: MAX_RESPONSE_BYTES,
            retry_after_cap: Duration::MAX,
        };
        let files = tls::TlsFiles {
            root_ca_file: common.root_ca_file.clone(),
            system_roots: common.system_roots,
            client_certificate_file: common.client_certificate_file.clone(),
            client_key_file: common.client_key_file.clone(),
        };
        let sources = CredentialSources {
            secret_env: common.secret_env.clone(),
            secret_file: common.secret_file.clone(),
            bearer_env: common.bearer_env.clone(),
            bearer_file: common.bearer_file.clone(),
            headers: common.headers.clone(),
            ..CredentialSources::default()
        };
        if let Some((name, _)) =
            common.headers.iter().find(|(_, value)| matches!(value, HeaderSetting::Template(_)))
        {
            return Err(SettingError::new(format!("headers.{name}"), "is a template, which only rails have"));
        }
        let allowed = Allowed::parse(&common.allow_private)?;
        Ok(Self {
            limits,
            credentials: Credentials::read(owner, sources, reserved)?,
            client: HttpClient::new(owner, client_limits, files, allowed, https)?,
        })
    }

    /// Refuses a payload that is larger than `max_bytes`.
    pub(super) fn check_size(&self, bytes: usize) -> Result<(), String> {
        self.limits.check_size(bytes)
    }

    /// Builds a signed request.
    pub(super) fn request(
        &self,
        method: Method,
        url: Url,
        headers: HeaderMap,
        id: &str,
        body: Vec<u8>,
    ) -> Result<Request, String> {
        let mut request = Request::new(method, url);
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into());
        self.credentials.add(&mut request, id).map_err(|invalid| invalid.message)?;
        Ok(request)
    }

    /// Sends a request once and returns the status. The error is for operators.
    pub(super) async fn send(&self, request: Request) -> Result<u16, String> {
        match self.client.send(request).await {
            Ok(response) => {
                if let Some(after) = response.retry_after {
                    // Only the lane schedules retries; the delay is for the operator.
                    tracing::info!(
                        status = response.status,
                        after_seconds = after.as_secs(),
                        "the receiver sent Retry-After; the lane's backoff applies"
                    );
                }
                Ok(response.status)
            }
            Err(SendError::NotSent(why) | SendError::MayHaveBeenSent(why)) => Err(why),
        }
    }
}

fn default_max_bytes() -> usize {
    1024 * 1024
}
