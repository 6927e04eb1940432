//! What receivers of events and of metadata have in common: the settings, the line to them, and who we say we are.
//!
//! Whatever they are sent may be sent again, so a request that may have arrived is a failure like any other.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName};
use reqwest::{Method, Request, Url};
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::address::Allowed;
use super::credentials::{Credentials, Sources};
use super::line::{self, Fault, Line};
use super::settings::HeaderSetting;
use super::target::Target;
use crate::config::{self, Problem, time};
use crate::courier::Limits;
use crate::secret::OneOrMany;
use crate::tls;

/// Nobody reads the answer; it is read so that the connection can be used again.
const ANSWER_LIMIT: usize = 64 * 1024;
const IDLE: Duration = Duration::from_secs(30);
const IDLE_CONNECTIONS: usize = 64;

/// The settings that every receiver has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Common {
    #[serde(default = "seconds::<10>", deserialize_with = "time")]
    timeout: Duration,
    #[serde(default = "seconds::<5>", deserialize_with = "time")]
    connect_timeout: Duration,
    #[serde(default = "one_mebibyte")]
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
    #[serde(default = "yes")]
    system_roots: bool,
    client_certificate_file: Option<PathBuf>,
    client_key_file: Option<PathBuf>,
}

const NAMES: [&str; 14] = [
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

impl Common {
    /// Reads the settings of a receiver: these, and those that are its own.
    pub(super) fn read<T: DeserializeOwned>(settings: toml::Table) -> Result<(Self, T), Problem> {
        config::read_both(settings, &NAMES, "every receiver")
    }

    /// A URL that may be asked.
    pub(super) fn target(&self, url: &str) -> Result<Target, Problem> {
        let allowed = Allowed::parse(&self.allow_private)?;
        Target::parse("url", url, self.allow_plain, &allowed)
            .map_err(|problem| problem.instead_of("allow_http", "allow_plain"))
    }
}

/// Somebody who is sent signed requests.
pub(super) struct Receiver {
    limits: Limits,
    credentials: Credentials,
    line: Line,
}

/// What came back.
pub(super) enum Answer {
    /// A status.
    Status(u16),
    /// Nothing that can be relied on; why, for people.
    None(String),
}

impl Receiver {
    /// `https` says whether requests use TLS, `taken` which headers carry something else already.
    pub(super) fn new(common: &Common, https: bool, taken: impl Fn(&HeaderName) -> bool) -> Result<Self, Problem> {
        let limits = Limits::new(common.timeout, common.connect_timeout, common.max_bytes)?;
        let line_limits = line::Limits {
            timeout: limits.timeout,
            connect_timeout: limits.connect_timeout,
            idle_timeout: Some(IDLE),
            idle_connections: IDLE_CONNECTIONS,
            answer_limit: ANSWER_LIMIT,
            retry_after_cap: Duration::MAX,
        };
        let files = tls::Files {
            root_ca_file: common.root_ca_file.as_deref(),
            system_roots: common.system_roots,
            client_certificate_file: common.client_certificate_file.as_deref(),
            client_key_file: common.client_key_file.as_deref(),
        };
        let sources = Sources {
            secret_env: common.secret_env.as_ref(),
            secret_file: common.secret_file.as_ref(),
            bearer_env: common.bearer_env.as_ref(),
            bearer_file: common.bearer_file.as_ref(),
            headers: &common.headers,
        };
        let allowed = Allowed::parse(&common.allow_private)?;
        Ok(Self {
            limits,
            credentials: Credentials::read(sources, taken)?,
            line: Line::new(line_limits, files, allowed, https)?,
        })
    }

    /// Why so many bytes cannot be sent, if they cannot.
    pub(super) fn check(&self, size: usize) -> Result<(), String> {
        self.limits.check(size)
    }

    /// A request with this id and body, signed.
    pub(super) fn request(
        &self,
        method: Method,
        url: Url,
        mut headers: HeaderMap,
        id: &str,
        body: Vec<u8>,
    ) -> Result<Request, String> {
        self.credentials.add(&mut headers, id, &body).map_err(|invalid| invalid.message)?;
        let mut request = Request::new(method, url);
        *request.headers_mut() = headers;
        *request.body_mut() = Some(body.into());
        Ok(request)
    }

    /// Sends it, once.
    pub(super) async fn send(&self, request: Request) -> Answer {
        match self.line.exchange(request).await {
            Ok(reply) => {
                if let Some(after) = reply.retry_after {
                    // The lane schedules, and nothing else does.
                    tracing::info!(
                        status = reply.status,
                        after_seconds = after.as_secs(),
                        "the receiver asks for a pause"
                    );
                }
                Answer::Status(reply.status)
            }
            Err(Fault::NotSent(why) | Fault::MayHaveBeenSent(why)) => Answer::None(why),
        }
    }
}

fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
}

fn one_mebibyte() -> usize {
    1024 * 1024
}

fn yes() -> bool {
    true
}
