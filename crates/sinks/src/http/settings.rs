//! What can be set, with its defaults. `docs/sinks/http.md` explains each; a test compares the two.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::credentials;
use super::inquiry::Verdict;
use super::line::Limits;
use super::outcome::{AnswerBody, Word};
use super::reply::{AnswerKeys, Place};
use crate::config::{Problem, optional_time, time};
use crate::money::Destination;
use crate::secret::{OneOrMany, Source};
use crate::tls;

/// The longest that one request may take, whatever the settings say: a lease cannot be held for ever.
const LONGEST_TIMEOUT: Duration = Duration::from_secs(600);
/// The longest delay that the database takes.
const LONGEST_DELAY: Duration = Duration::from_secs(30 * 24 * 3600);
/// The largest answer that may be read into memory, whatever the settings say.
const LARGEST_ANSWER: usize = 16 * 1024 * 1024;

/// The settings of an HTTP rail.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    pub(super) url: String,
    pub(super) inquiry_url: Option<String>,
    #[serde(default)]
    pub(super) destination: Destination,

    #[serde(default)]
    pub(super) allow_http: bool,
    #[serde(default)]
    pub(super) allow_private: Vec<String>,

    #[serde(default = "seconds::<30>", deserialize_with = "time")]
    pub(super) timeout: Duration,
    #[serde(default = "seconds::<5>", deserialize_with = "time")]
    pub(super) connect_timeout: Duration,
    #[serde(default, deserialize_with = "optional_time")]
    pub(super) idle_timeout: Option<Duration>,
    #[serde(default = "idle_connections")]
    pub(super) idle_connections: usize,
    #[serde(default = "max_bytes")]
    pub(super) max_bytes: usize,
    #[serde(default = "answer_limit_bytes")]
    pub(super) answer_limit_bytes: usize,
    #[serde(default = "seconds::<3600>", deserialize_with = "time")]
    pub(super) retry_after_cap: Duration,

    #[serde(default = "idempotency_header")]
    pub(super) idempotency_header: String,
    pub(super) secret_env: Option<OneOrMany>,
    pub(super) secret_file: Option<OneOrMany>,
    pub(super) bearer_env: Option<String>,
    pub(super) bearer_file: Option<PathBuf>,
    #[serde(default)]
    pub(super) headers: BTreeMap<String, HeaderSetting>,

    pub(super) root_ca_file: Option<PathBuf>,
    #[serde(default = "yes")]
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
    pub(super) outcomes: BTreeMap<String, Word>,
    #[serde(default)]
    pub(super) inquiry: BTreeMap<String, Verdict>,
}

/// The value of a header that is sent with every request.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, expecting = "a text that is no secret, { env = \"NAME\" } or { file = \"/path\" }")]
pub(super) enum HeaderSetting {
    /// Written in the settings: not for secrets.
    Plain(String),
    /// From elsewhere.
    From(Source),
}

impl Settings {
    /// What no single field can say.
    pub(super) fn check_limits(&self) -> Result<(), Problem> {
        let limit = |setting, ok: bool, text: &str| if ok { Ok(()) } else { Err(Problem::new(setting, text)) };
        let some = !self.timeout.is_zero() && self.timeout <= LONGEST_TIMEOUT;
        limit("timeout", some, "must be above zero and at most \"10m\"")?;
        // Otherwise a connection that never came about would be taken for a request that may have arrived.
        let shorter = !self.connect_timeout.is_zero() && self.connect_timeout < self.timeout;
        limit("connect_timeout", shorter, "must be above zero and shorter than timeout")?;
        limit("retry_after_cap", self.retry_after_cap <= LONGEST_DELAY, "must be at most \"720h\"")?;
        let idle = self.idle_timeout.is_none_or(|idle| !idle.is_zero() && idle <= LONGEST_TIMEOUT);
        limit(
            "idle_timeout",
            idle,
            "must be above zero and at most \"10m\"; leave it out to keep no connections",
        )?;
        limit("idle_connections", (1..=10_000).contains(&self.idle_connections), "must be from 1 to 10000")?;
        let answer = (1..=LARGEST_ANSWER).contains(&self.answer_limit_bytes);
        limit("answer_limit_bytes", answer, "must be from 1 to 16777216")?;
        limit("max_bytes", (1..=LARGEST_ANSWER).contains(&self.max_bytes), "must be from 1 to 16777216")
    }

    pub(super) fn limits(&self) -> Limits {
        Limits {
            timeout: self.timeout,
            connect_timeout: self.connect_timeout,
            idle_timeout: self.idle_timeout,
            idle_connections: self.idle_connections,
            answer_limit: self.answer_limit_bytes,
            retry_after_cap: self.retry_after_cap,
        }
    }

    pub(super) fn files(&self) -> tls::Files<'_> {
        tls::Files {
            root_ca_file: self.root_ca_file.as_deref(),
            system_roots: self.system_roots,
            client_certificate_file: self.client_certificate_file.as_deref(),
            client_key_file: self.client_key_file.as_deref(),
        }
    }

    pub(super) fn sources(&self) -> credentials::Sources<'_> {
        credentials::Sources {
            secret_env: self.secret_env.as_ref(),
            secret_file: self.secret_file.as_ref(),
            bearer_env: self.bearer_env.as_ref(),
            bearer_file: self.bearer_file.as_ref(),
            headers: &self.headers,
        }
    }

    /// Where in an answer to look for what.
    pub(super) fn answer_keys(&self) -> Result<AnswerKeys, Problem> {
        Ok(AnswerKeys {
            reference: Place::parse("reference_key", &self.reference_key)?,
            code: Place::parse("code_key", &self.code_key)?,
            status: Place::parse("status_key", &self.status_key)?,
        })
    }
}

fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
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

fn yes() -> bool {
    true
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
