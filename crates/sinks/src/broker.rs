//! Reads the settings that every broker has: timeouts, size limit, credentials, TLS files and the URL.
//!
//! Each sink reads its own settings beside these. Both refuse unknown settings.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use url::Url;

use crate::config::{self, SettingError, duration};
use crate::connection_manager::Limits;
use crate::secret::{self, Secret};
use crate::tls;

/// The settings that every broker has, whatever its protocol.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct BrokerSettings {
    #[serde(default = "config::seconds::<10>", deserialize_with = "duration")]
    pub(crate) timeout: Duration,
    #[serde(default = "config::seconds::<5>", deserialize_with = "duration")]
    pub(crate) connect_timeout: Duration,
    max_bytes: Option<usize>,
    #[serde(default)]
    pub(crate) allow_plain: bool,

    user: Option<String>,
    password_env: Option<String>,
    password_file: Option<PathBuf>,

    pub(crate) root_ca_file: Option<PathBuf>,
    #[serde(default = "config::enabled")]
    system_roots: bool,
    pub(crate) client_certificate_file: Option<PathBuf>,
    pub(crate) client_key_file: Option<PathBuf>,
}

const SETTING_NAMES: [&str; 11] = [
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

/// User and password.
#[derive(Debug)]
pub(crate) struct Login {
    pub(crate) user: Option<String>,
    pub(crate) password: Secret,
}

impl BrokerSettings {
    /// Reads the shared settings and the sink's own settings from one table.
    pub(crate) fn read<T: DeserializeOwned>(settings: toml::Table) -> Result<(Self, T), SettingError> {
        config::read_both(settings, &SETTING_NAMES, "every broker")
    }

    /// The limits of a delivery, with the broker's default for `max_bytes`.
    pub(crate) fn limits(&self, default_max_bytes: usize) -> Result<Limits, SettingError> {
        Limits::new(self.timeout, self.connect_timeout, self.max_bytes.unwrap_or(default_max_bytes))
    }

    /// The user and the password, if they are set. `needs_user` is for brokers that take no password without a user.
    pub(crate) fn login(&self, needs_user: bool) -> Result<Option<Login>, SettingError> {
        let password =
            secret::from_env_or_file("password_env", &self.password_env, "password_file", &self.password_file)?;
        match (&self.user, password) {
            (None, None) => Ok(None),
            (None, Some(_)) if needs_user => Err(SettingError::new("user", "must be set with a password")),
            (user, Some(password)) => Ok(Some(Login { user: user.clone(), password })),
            (Some(_), None) => Err(SettingError::new(
                "password_env",
                "must name the variable with the password of user, or use password_file",
            )),
        }
    }

    /// The TLS client configuration. `needed` says whether the URL asks for TLS.
    pub(crate) fn tls(&self, needed: bool) -> Result<rustls::ClientConfig, SettingError> {
        let files = tls::TlsFiles {
            root_ca_file: self.root_ca_file.clone(),
            system_roots: self.system_roots,
            client_certificate_file: self.client_certificate_file.clone(),
            client_key_file: self.client_key_file.clone(),
        };
        tls::client_config(&files, needed)
    }
}

/// The URL schemes of a broker with and without TLS, each with its default port.
pub(crate) struct Schemes {
    pub(crate) tls: (&'static str, u16),
    pub(crate) plain: (&'static str, u16),
}

/// The host and port of a broker, and whether to use TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) tls: bool,
    /// The path of the URL without its first slash, still percent-encoded.
    pub(crate) path: String,
}

impl Endpoint {
    pub(crate) fn parse(text: &str, schemes: &Schemes, allow_plain: bool) -> Result<Self, SettingError> {
        let ((tls, tls_port), (plain, plain_port)) = (schemes.tls, schemes.plain);
        let bad = |text: String| SettingError::new("url", text);
        let url = Url::parse(text).map_err(|error| {
            bad(format!("must be a URL, such as \"{tls}://broker.example:{tls_port}\"")).with_source(error)
        })?;
        let (is_tls, port) = match url.scheme() {
            scheme if scheme == tls => (true, tls_port),
            scheme if scheme == plain && allow_plain => (false, plain_port),
            scheme if scheme == plain => {
                return Err(bad(format!(
                    "must begin with {tls}://; set allow_plain = true to permit it without TLS"
                )));
            }
            _ => return Err(bad(format!("must begin with {tls}://"))),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(bad(
                "must contain no user or password: use user with password_env or password_file".to_owned()
            ));
        }
        if url.query().is_some() || url.fragment().is_some() {
            return Err(bad("must contain nothing behind ? or #".to_owned()));
        }
        let host = url.host_str().unwrap_or_default().trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(bad("must name a host".to_owned()));
        }
        let path = url.path().trim_start_matches('/').to_owned();
        Ok(Self { host, port: url.port().unwrap_or(port), tls: is_tls, path })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REDIS: Schemes = Schemes { tls: ("rediss", 6379), plain: ("redis", 6379) };

    fn endpoint(text: &str, allow_plain: bool) -> Result<Endpoint, String> {
        Endpoint::parse(text, &REDIS, allow_plain).map_err(|error| error.for_sink("s").to_string())
    }

    #[test]
    fn a_url_without_tls_needs_allow_plain() {
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
    fn an_unknown_setting_is_refused_with_the_known_settings() {
        #[derive(Debug, Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Own {
            #[expect(dead_code, reason = "only its name matters")]
            url: String,
        }
        let refused =
            BrokerSettings::read::<Own>("url = 'x'\ntimeuot = '3s'".parse().unwrap()).unwrap_err().for_sink("s");
        let error = refused.to_string();
        assert!(error.starts_with("sink s: timeuot: unknown field `timeuot`, expected `url`"), "{error}");
        assert!(error.contains("`connect_timeout`"), "{error}");
    }

    #[test]
    fn limits_out_of_range_are_refused() {
        for (toml, setting) in [
            ("timeout = '0s'", "timeout"),
            ("timeout = '11m'", "timeout"),
            ("connect_timeout = '10s'", "connect_timeout"),
            ("max_bytes = 0", "max_bytes"),
            ("max_bytes = 100000000", "max_bytes"),
        ] {
            let common: BrokerSettings = config::read(toml.parse().unwrap()).unwrap();
            let error = common.limits(1).unwrap_err().for_sink("s").to_string();
            assert!(error.starts_with(&format!("sink s: {setting}: must be ")), "{error}");
        }
    }
}
