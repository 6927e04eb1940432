//! What every broker has in common: how long, how large, whom to believe, who we say we are, and where it is.
//!
//! A sink's own settings are read by itself; both refuse what they do not know.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::config::{self, Problem, time};
use crate::courier::Limits;
use crate::secret::{Secret, Source};
use crate::tls;

/// The settings that every broker has.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Common {
    #[serde(default = "seconds::<10>", deserialize_with = "time")]
    pub(crate) timeout: Duration,
    #[serde(default = "seconds::<5>", deserialize_with = "time")]
    pub(crate) connect_timeout: Duration,
    max_bytes: Option<usize>,
    #[serde(default)]
    pub(crate) allow_plain: bool,

    user: Option<String>,
    password_env: Option<String>,
    password_file: Option<PathBuf>,

    pub(crate) root_ca_file: Option<PathBuf>,
    #[serde(default = "yes")]
    system_roots: bool,
    pub(crate) client_certificate_file: Option<PathBuf>,
    pub(crate) client_key_file: Option<PathBuf>,
}

const NAMES: [&str; 11] = [
    "timeout",
    "connect_timeout",
    "max_bytes",
    "allow_plain",
    "user",
    "password_env",
    "password_file",
    "root_ca_file",
    "system_roots",
    "client_certificate_file",
    "client_key_file",
];

/// Who we say we are.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Secret,
}

impl Common {
    /// Reads the settings of a sink: these, and those that are its own.
    pub(crate) fn read<T: DeserializeOwned>(settings: toml::Table) -> Result<(Self, T), Problem> {
        config::read_both(settings, &NAMES, "every broker")
    }

    /// What nothing that is sent may exceed. `largest` is the default for its size.
    pub(crate) fn limits(&self, largest: usize) -> Result<Limits, Problem> {
        Limits::new(self.timeout, self.connect_timeout, self.max_bytes.unwrap_or(largest))
    }

    /// The user and the password, where there are any. `needs_user` is for brokers where one means nothing without
    /// the other.
    pub(crate) fn login(&self, needs_user: bool) -> Result<Option<Login>, Problem> {
        let password = either("password_env", &self.password_env, "password_file", &self.password_file)?;
        match (&self.user, password) {
            (None, None) => Ok(None),
            (None, Some(_)) if needs_user => Err(Problem::new("user", "must be set with a password")),
            (user, Some(password)) => Ok(Some(Login { user: user.clone(), password })),
            (Some(_), None) => Err(Problem::new(
                "password_env",
                "must name the variable with the password of user, or use password_file",
            )),
        }
    }

    /// The settings of rustls.
    #[cfg(any(feature = "nats", feature = "rabbitmq", feature = "redis"))]
    pub(crate) fn tls(&self, needed: bool) -> Result<rustls::ClientConfig, Problem> {
        let files = tls::Files {
            root_ca_file: self.root_ca_file.as_deref(),
            system_roots: self.system_roots,
            client_certificate_file: self.client_certificate_file.as_deref(),
            client_key_file: self.client_key_file.as_deref(),
        };
        tls::client(files, needed)
    }
}

/// A secret from a variable or from a file, where one of the two is set.
pub(crate) fn either(
    env_setting: &'static str,
    env: &Option<String>,
    file_setting: &'static str,
    file: &Option<PathBuf>,
) -> Result<Option<Secret>, Problem> {
    match (env, file) {
        (Some(_), Some(_)) => Err(Problem::new(env_setting, format!("and {file_setting} are both set: keep one"))),
        (Some(name), None) => Source::Env(name.clone()).read(env_setting).map(Some),
        (None, Some(path)) => Source::File(path.clone()).read(file_setting).map(Some),
        (None, None) => Ok(None),
    }
}

/// How the URL of a broker begins, with and without TLS, and the ports that it then has by itself.
pub(crate) struct Schemes {
    pub(crate) tls: (&'static str, u16),
    pub(crate) plain: (&'static str, u16),
}

/// Where a broker is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    /// What follows the host, without the slash before it; not decoded.
    pub(crate) path: String,
}

impl Endpoint {
    pub(crate) fn parse(text: &str, schemes: &Schemes, allow_plain: bool) -> Result<Self, Problem> {
        let ((tls, tls_port), (plain, plain_port)) = (schemes.tls, schemes.plain);
        let bad = |text: String| Problem::new("url", text);
        let url = Url::parse(text).map_err(|error| {
            bad(format!("must be a URL, such as \"{tls}://broker.example:{tls_port}\"")).because(error)
        })?;
        let (is_tls, port) = match url.scheme() {
            scheme if scheme == tls => (true, tls_port),
            scheme if scheme == plain && allow_plain => (false, plain_port),
            scheme if scheme == plain => {
                return Err(bad(format!("must begin with {tls}://; allow_plain = true lets it go without TLS")));
            }
            _ => return Err(bad(format!("must begin with {tls}://"))),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad(
                "must hold no user or password: use user with password_env or password_file".to_owned()
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("must hold nothing behind ? or #".to_owned()));
        }
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(bad("must name a host".to_owned()));
        }
        let path = url.path().trim_start_matches('/').to_owned();
        Ok(Self { host, port: url.port().unwrap_or(port), tls: is_tls, path })
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

    const REDIS: Schemes = Schemes { tls: ("rediss", 6379), plain: ("redis", 6379) };

    fn endpoint(text: &str, allow_plain: bool) -> Result<Endpoint, String> {
        Endpoint::parse(text, &REDIS, allow_plain).map_err(|problem| problem.of_sink("s").to_string())
    }

    #[test]
    fn a_broker_is_reached_by_tls_unless_the_settings_say_otherwise() {
        let found = endpoint("rediss://a.example:7000/3", false).unwrap();
        assert_eq!(
            (found.host.as_str(), found.port, found.tls, found.path.as_str()),
            ("a.example", 7000, true, "3")
        );
        assert_eq!(endpoint("redis://[::1]", true).unwrap().host, "::1");
        assert!(endpoint("redis://a.example", false).unwrap_err().contains("allow_plain = true"));
        for text in ["", "a.example", "http://a.example", "rediss://", "rediss://u:p@a.example", "rediss://a?x=1"]
        {
            assert!(endpoint(text, true).unwrap_err().starts_with("sink s: url: must "), "{text}");
        }
    }

    #[test]
    fn an_unknown_setting_is_refused_with_all_that_there_are() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Own {
            #[expect(dead_code, reason = "only its name matters")]
            url: String,
        }
        let refused = Common::read::<Own>("url = 'x'\ntimeuot = '3s'".parse().unwrap()).unwrap_err().of_sink("s");
        let said = refused.to_string();
        assert!(said.starts_with("sink s: timeuot: unknown field `timeuot`, expected `url`"), "{said}");
        assert!(said.contains("`connect_timeout`"), "{said}");
    }

    #[test]
    fn limits_are_limited() {
        for (toml, setting) in [
            ("timeout = '0s'", "timeout"),
            ("timeout = '11m'", "timeout"),
            ("connect_timeout = '10s'", "connect_timeout"),
            ("max_bytes = 0", "max_bytes"),
            ("max_bytes = 100000000", "max_bytes"),
        ] {
            let common: Common = config::read(toml.parse().unwrap()).unwrap();
            let said = common.limits(1).unwrap_err().of_sink("s").to_string();
            assert!(said.starts_with(&format!("sink s: {setting}: must be ")), "{said}");
        }
    }
}
