//! Batches of spans to a collector, by OTLP over HTTP(S): one POST of protobuf each.
//!
//! It shares line, credentials and TLS with the rail. Where it may go is for the settings alone, since nothing that is carried has a
//! say in it: collectors are in the house more often than not, so addresses of the house are not refused.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use reqwest::{Method, Request};
use serde::Deserialize;

use super::address::Allowed;
use super::credentials::{Credentials, Sources};
use super::line::{self, Fault, Line};
use super::settings::HeaderSetting;
use super::target::Target;
use crate::config::{Problem, time};
use crate::courier::Limits;
use crate::tls;

const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
/// Nobody reads the answer; it is read so that the connection can be used again.
const ANSWER_LIMIT: usize = 64 * 1024;
const IDLE: Duration = Duration::from_secs(30);

/// Where the collector is, and who we say we are.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Settings {
    endpoint: String,
    #[serde(default)]
    allow_plain: bool,
    #[serde(default = "seconds::<10>", deserialize_with = "time")]
    timeout: Duration,
    #[serde(default = "seconds::<5>", deserialize_with = "time")]
    connect_timeout: Duration,

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

/// The names of these.
pub(crate) const NAMES: [&str; 11] = [
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

/// Somebody who takes spans.
pub(crate) struct Collector {
    target: Target,
    credentials: Credentials,
    line: Line,
}

/// Why a batch was not taken.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// The same may be taken later.
    Later(String),
    /// The same will not be taken.
    Never(String),
}

impl Collector {
    pub(crate) fn build(settings: &Settings) -> Result<Self, Problem> {
        let allowed = Allowed::everywhere();
        let target = Target::parse("endpoint", &settings.endpoint, settings.allow_plain, &allowed)
            .map_err(|problem| problem.instead_of("allow_http", "allow_plain"))?;
        // What is sent is ours, and bounded where it is gathered.
        let limits = Limits::new(settings.timeout, settings.connect_timeout, 1)?;
        let limits = line::Limits {
            timeout: limits.timeout,
            connect_timeout: limits.connect_timeout,
            idle_timeout: Some(IDLE),
            idle_connections: 1,
            answer_limit: ANSWER_LIMIT,
            retry_after_cap: Duration::ZERO,
        };
        let files = tls::Files {
            root_ca_file: settings.root_ca_file.as_deref(),
            system_roots: settings.system_roots,
            client_certificate_file: settings.client_certificate_file.as_deref(),
            client_key_file: settings.client_key_file.as_deref(),
        };
        let sources = Sources {
            secret_env: None,
            secret_file: None,
            bearer_env: settings.bearer_env.as_ref(),
            bearer_file: settings.bearer_file.as_ref(),
            headers: &settings.headers,
        };
        Ok(Self {
            credentials: Credentials::read(sources, |_| false)?,
            line: Line::new(limits, files, allowed, target.is_https())?,
            target,
        })
    }

    /// Sends a batch, once.
    pub(crate) async fn post(&self, batch: Vec<u8>) -> Result<(), Failure> {
        let mut headers = HeaderMap::from_iter([(CONTENT_TYPE, PROTOBUF)]);
        self.credentials.add(&mut headers, "", &batch).map_err(|invalid| Failure::Never(invalid.message))?;
        let mut request = Request::new(Method::POST, self.target.url());
        *request.headers_mut() = headers;
        *request.body_mut() = Some(batch.into());
        match self.line.exchange(request).await {
            Ok(reply) => meaning(reply.status),
            Err(Fault::NotSent(why) | Fault::MayHaveBeenSent(why)) => Err(Failure::Later(why)),
        }
    }
}

/// What a status means for a batch: OTLP names those after which the same may be sent again.
fn meaning(status: u16) -> Result<(), Failure> {
    let said = format!("the collector answered HTTP {status}");
    match status {
        200..=299 => Ok(()),
        429 | 502 | 503 | 504 => Err(Failure::Later(said)),
        _ => Err(Failure::Never(said)),
    }
}

fn seconds<const N: u64>() -> Duration {
    Duration::from_secs(N)
}

fn yes() -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_the_same_could_be_taken_later() {
        for status in [200, 202, 204] {
            assert_eq!(meaning(status), Ok(()));
        }
        for status in [429, 502, 503, 504] {
            assert!(matches!(meaning(status), Err(Failure::Later(_))), "{status}");
        }
        for status in [301, 400, 401, 404, 413, 500, 501] {
            assert!(matches!(meaning(status), Err(Failure::Never(_))), "{status}");
        }
    }
}
