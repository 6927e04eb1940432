//! Posts batches of spans to an OpenTelemetry collector, by OTLP over HTTP(S) with protobuf.
//!
//! It shares the HTTP client, credentials and TLS with the rail. Private addresses are allowed: only the settings
//! decide where spans go, no row can change it, and most collectors run in the internal network.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, Request};
use serde::Deserialize;

use super::address::Allowed;
use super::client::{self, HttpClient, SendError};
use super::credentials::{CredentialSources, Credentials};
use super::settings::HeaderSetting;
use super::target::Target;
use crate::config::{self, SettingError, duration};
use crate::connection_manager::Limits;
use crate::tls;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
/// The body is ignored. It is read so that the connection can be used again.
const MAX_RESPONSE_BYTES: usize = 64 * 1024;
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The collector's endpoint, credentials and TLS files.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    endpoint: String,
    #[serde(default)]
    allow_plain: bool,
    #[serde(default = "config::seconds::<10>", deserialize_with = "duration")]
    timeout: Duration,
    #[serde(default = "config::seconds::<5>", deserialize_with = "duration")]
    connect_timeout: Duration,

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

pub(crate) const SETTING_NAMES: [&str; 11] = [
    "endpoint",
    "allow_plain",
    "timeout",
    "connect_timeout",
    "bearer_env",
    "bearer_file",
    "headers",
    "root_ca_file",
    "system_roots",
    "client_certificate_file",
    "client_key_file",
];

/// An OpenTelemetry collector.
pub(crate) struct Collector {
    target: Target,
    credentials: Credentials,
    client: HttpClient,
}

/// Why a batch was not exported.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum ExportError {
    /// The collector may take the same batch later.
    Retryable(String),
    /// The collector will not take this batch.
    Refused(String),
}

impl Collector {
    pub(crate) fn build(settings: &Settings) -> Result<Self, SettingError> {
        let allowed = Allowed::all();
        let target = Target::parse("endpoint", &settings.endpoint, settings.allow_plain, &allowed)
            .map_err(|error| error.with_name_replaced("allow_http", "allow_plain"))?;
        // The size of a batch is bounded where it is collected.
        let limits = Limits::new(settings.timeout, settings.connect_timeout, 1)?;
        let limits = client::Limits {
            timeout: limits.timeout,
            connect_timeout: limits.connect_timeout,
            idle_timeout: Some(IDLE_TIMEOUT),
            idle_connections: 1,
            max_response_bytes: MAX_RESPONSE_BYTES,
            retry_after_cap: Duration::ZERO,
        };
        let files = tls::TlsFiles {
            root_ca_file: settings.root_ca_file.clone(),
            system_roots: settings.system_roots,
            client_certificate_file: settings.client_certificate_file.clone(),
            client_key_file: settings.client_key_file.clone(),
        };
        let sources = CredentialSources {
            bearer_env: settings.bearer_env.clone(),
            bearer_file: settings.bearer_file.clone(),
            headers: settings.headers.clone(),
            ..CredentialSources::default()
        };
        Ok(Self {
            credentials: Credentials::read("traces", sources, |_| false)?,
            client: HttpClient::new("traces", limits, files, allowed, target.is_https())?,
            target,
        })
    }

    /// Posts a batch once.
    pub(crate) async fn post(&self, batch: Vec<u8>) -> Result<(), ExportError> {
        let mut request = Request::new(Method::POST, self.target.url());
        request.headers_mut().insert(CONTENT_TYPE, PROTOBUF);
        *request.body_mut() = Some(batch.into());
        self.credentials.add(&mut request, "").map_err(|invalid| ExportError::Refused(invalid.message))?;
        match self.client.send(request).await {
            Ok(response) => classify(response.status),
            Err(SendError::NotSent(why) | SendError::MayHaveBeenSent(why)) => Err(ExportError::Retryable(why)),
        }
    }
}

/// The result of an export, by the collector's status. The OTLP specification lists the retryable statuses.
fn classify(status: u16) -> Result<(), ExportError> {
    let text = format!("the collector answered HTTP {status}");
    match status {
        200..=299 => Ok(()),
        429 | 502 | 503 | 504 => Err(ExportError::Retryable(text)),
        _ => Err(ExportError::Refused(text)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_statuses_of_the_specification_are_retryable() {
        for status in [200, 202, 204] {
            assert_eq!(classify(status), Ok(()));
        }
        for status in [429, 502, 503, 504] {
            assert!(matches!(classify(status), Err(ExportError::Retryable(_))), "{status}");
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert!(matches!(classify(status), Err(ExportError::Refused(_))), "{status}");
        }
    }
}
