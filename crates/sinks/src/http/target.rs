//! Checks and builds the URLs of requests. The settings fix host, port and path; no payment can change them.

use reqwest::Url;
use symphony_relay::rail::Invalid;

use super::address::Allowed;
use crate::config::SettingError;
use crate::encoding;

const KEY_VARIABLE: &str = "{idempotency_key}";
/// A placeholder while the URL is parsed. It consists of unreserved characters, so the parser leaves it as it is.
const PLACEHOLDER: &str = "symphony-stands-in-for-a-key";

/// A URL that requests may go to.
#[derive(Clone, Debug)]
pub(super) struct Target(Url);

impl Target {
    pub(super) fn parse(
        setting: &'static str,
        text: &str,
        allow_http: bool,
        allowed: &Allowed,
    ) -> Result<Self, SettingError> {
        let url = Url::parse(text).map_err(|error| {
            SettingError::new(setting, "must be a URL, such as \"https://bank.example/v1/payments\"")
                .with_source(error)
        })?;
        match url.scheme() {
            "https" => {}
            "http" if allow_http => {}
            "http" => {
                return Err(SettingError::new(
                    setting,
                    "must be https://; set allow_http = true to permit plain HTTP",
                ));
            }
            _ => return Err(SettingError::new(setting, "must begin with https://")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(SettingError::new(
                setting,
                "must contain no user or password: use bearer_file or headers",
            ));
        }
        if url.fragment().is_some() {
            return Err(SettingError::new(setting, "must contain no part behind #: it would not be sent"));
        }
        // A host that is an IP address never reaches the resolver and its filter.
        let address = match url.host() {
            Some(url::Host::Ipv4(address)) => Some(address.into()),
            Some(url::Host::Ipv6(address)) => Some(address.into()),
            Some(url::Host::Domain(_)) => None,
            None => return Err(SettingError::new(setting, "must name a host")),
        };
        if let Some(why) = address.and_then(|address| allowed.refusal(address)) {
            let text = format!("its host is {why}: add its name or network to allow_private to permit it");
            return Err(SettingError::new(setting, text));
        }
        Ok(Self(url))
    }

    pub(super) fn url(&self) -> Url {
        self.0.clone()
    }

    pub(super) fn host(&self) -> Option<&str> {
        self.0.host_str()
    }

    /// What identifies the server: scheme, host, port and path. A query may hold a secret.
    pub(super) fn identity(&self) -> String {
        identity(&self.0)
    }

    pub(super) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }
}

/// A URL with a variable for the idempotency key in its path or query.
#[derive(Clone, Debug)]
pub(super) struct InquiryTarget {
    template: String,
    https: bool,
}

impl InquiryTarget {
    pub(super) fn parse(template: &str, allow_http: bool, allowed: &Allowed) -> Result<Self, SettingError> {
        let setting = "inquiry_url";
        if template.matches(KEY_VARIABLE).count() != 1 || template.contains(PLACEHOLDER) {
            return Err(SettingError::new(
                setting,
                format!("must contain {KEY_VARIABLE} once, where the key belongs"),
            ));
        }
        let target = Target::parse(setting, &template.replace(KEY_VARIABLE, PLACEHOLDER), allow_http, allowed)?;
        let url = target.url();
        let in_path_or_query =
            url.path().contains(PLACEHOLDER) || url.query().is_some_and(|query| query.contains(PLACEHOLDER));
        if !in_path_or_query {
            return Err(SettingError::new(setting, format!("must contain {KEY_VARIABLE} in its path or query")));
        }
        Ok(Self { template: String::from(url), https: target.is_https() })
    }

    /// The URL of the inquiry about this key.
    pub(super) fn url(&self, key: &str) -> Result<Url, Invalid> {
        let text = self.template.replace(PLACEHOLDER, &encoding::url_segment(key));
        // A key such as ".." would ask for another path: a URL that the parser changes is refused.
        Url::parse(&text).ok().filter(|url| url.as_str() == text).ok_or_else(|| Invalid {
            message: "idempotency_key must be more than dots, since it is part of a path".to_owned(),
        })
    }

    /// What identifies the server, as [`Target::identity`].
    pub(super) fn identity(&self) -> String {
        // The template was parsed when the settings were read.
        Url::parse(&self.template).map(|url| identity(&url)).unwrap_or_default()
    }

    pub(super) fn is_https(&self) -> bool {
        self.https
    }
}

fn identity(url: &Url) -> String {
    let port = url.port_or_known_default().unwrap_or_default();
    format!("{}://{}:{port}{}", url.scheme(), url.host_str().unwrap_or_default(), url.path())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(text: &str, allow_http: bool, allow: &[&str]) -> Result<Target, String> {
        let allow: Vec<String> = allow.iter().map(|&entry| entry.to_owned()).collect();
        let allowed = Allowed::parse(&allow).unwrap();
        Target::parse("url", text, allow_http, &allowed).map_err(|error| error.for_rail("sepa").to_string())
    }

    fn template(text: &str) -> Result<InquiryTarget, String> {
        let allowed = Allowed::parse(&[]).unwrap();
        InquiryTarget::parse(text, false, &allowed).map_err(|error| error.for_rail("sepa").to_string())
    }

    #[test]
    fn only_https_is_allowed_without_allow_http() {
        assert!(target("https://bank.example/pay?x=1", false, &[]).is_ok());
        assert!(target("http://bank.example/", false, &[]).unwrap_err().contains("allow_http = true"));
        assert!(target("http://bank.example/", true, &[]).is_ok());
        for text in [
            "",
            "bank.example",
            "ftp://bank.example",
            "file:///etc/passwd",
            "https://",
            "https://a@bank.example",
            "https://a:b@bank.example",
            "https://bank.example/#x",
            "unix:/run/bank",
        ] {
            assert!(target(text, true, &[]).is_err(), "{text}");
        }
    }

    #[test]
    fn an_address_for_a_host_is_checked_however_it_is_written() {
        for host in [
            "127.0.0.1",
            "2130706433",
            "0x7f.1",
            "0177.0.0.1",
            "127.1",
            "0",
            "[::1]",
            "[::ffff:127.0.0.1]",
            "[::127.0.0.1]",
            "10.0.0.1",
            "169.254.169.254",
            "[64:ff9b::a00:1]",
            "[2002:a00:1::]",
            "[fd00::1]",
            "１２７.0.0.1",
        ] {
            assert!(
                target(&format!("https://{host}/"), false, &[]).unwrap_err().contains("allow_private"),
                "{host}"
            );
        }
        assert!(target("https://127.0.0.1/", false, &["127.0.0.0/8"]).is_ok());
        assert!(target("https://127.0.0.1/", false, &["127.0.0.1"]).is_ok());
        assert!(target("https://10.0.0.1/", false, &["127.0.0.0/8"]).is_err());
        assert!(target("https://8.8.8.8/", false, &[]).is_ok());
    }

    #[test]
    fn the_key_variable_is_allowed_in_path_or_query_only() {
        assert!(template("https://bank.example/v1/payments/{idempotency_key}").is_ok());
        assert!(template("https://bank.example/v1/payments?key={idempotency_key}&x=1").is_ok());
        for text in [
            "https://bank.example/v1",
            "https://{idempotency_key}.example/",
            "https://bank.example:{idempotency_key}/",
            "https://bank.example/{idempotency_key}/{idempotency_key}",
            "https://bank.example/#{idempotency_key}",
            "https://{idempotency_key}@bank.example/",
        ] {
            assert!(template(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_key_of_dots_is_refused() {
        let inquiry = template("https://bank.example/v1/payments/{idempotency_key}").unwrap();
        for key in ["", ".", ".."] {
            let url = inquiry.url(key);
            assert!(key.is_empty() || url.is_err(), "{key}");
        }
        assert!(inquiry.url("...").is_ok());
    }

    proptest! {
        #![proptest_config(crate::proptest_config::proptest_config())]

        #[test]
        fn no_key_leads_to_another_host_or_path(key in "\\PC{1,40}") {
            let inquiry = template("https://bank.example/v1/payments/{idempotency_key}").unwrap();
            if let Ok(url) = inquiry.url(&key) {
                prop_assert_eq!(url.host_str(), Some("bank.example"));
                prop_assert_eq!((url.query(), url.fragment(), url.port()), (None, None, None));
                let encoded = url.path().strip_prefix("/v1/payments/").unwrap();
                prop_assert!(!encoded.contains('/'));
                prop_assert_eq!(percent_encoding::percent_decode_str(encoded).decode_utf8().unwrap(), key.as_str());
            } else {
                prop_assert!(key.bytes().all(|byte| byte == b'.'));
            }
        }
    }
}
