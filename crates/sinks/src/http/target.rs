//! Where requests go. Fixed by the settings: nothing in a payment can change host, port or path.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::Url;
use symphony_relay::rail::Invalid;

use super::address::Allowed;
use crate::config::Problem;

const PLACE: &str = "{idempotency_key}";
/// Stands in for a key while a template is read; no URL parser changes it.
const STAND_IN: &str = "symphony-stands-in-for-a-key";
/// What a key keeps as it is: the characters that RFC 3986 never reserves.
pub(super) const KEPT: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A URL that may be asked.
#[derive(Clone, Debug)]
pub(super) struct Target(Url);

impl Target {
    pub(super) fn parse(
        setting: &'static str,
        text: &str,
        allow_http: bool,
        allowed: &Allowed,
    ) -> Result<Self, Problem> {
        let url = Url::parse(text).map_err(|error| {
            Problem::new(setting, "must be a URL, such as \"https://bank.example/v1/payments\"").because(error)
        })?;
        match url.scheme() {
            "https" => {}
            "http" if allow_http => {}
            "http" => {
                return Err(Problem::new(setting, "must be https://; allow_http = true lets it go without TLS"));
            }
            _ => return Err(Problem::new(setting, "must begin with https://")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Problem::new(setting, "must hold no user or password: use bearer_file or headers"));
        }
        if url.fragment().is_some() {
            return Err(Problem::new(setting, "must hold no part behind #: it would not be sent"));
        }
        // Hosts that are addresses never reach the resolver, and so not the filter in it either.
        let address = match url.host() {
            Some(url::Host::Ipv4(address)) => Some(address.into()),
            Some(url::Host::Ipv6(address)) => Some(address.into()),
            Some(url::Host::Domain(_)) => None,
            None => return Err(Problem::new(setting, "must name a host")),
        };
        if let Some(why) = address.and_then(|address| allowed.refusal(address)) {
            let text = format!("its host is {why}; allow_private lets requests go there, by name or network");
            return Err(Problem::new(setting, text));
        }
        Ok(Self(url))
    }

    pub(super) fn url(&self) -> Url {
        self.0.clone()
    }

    pub(super) fn is_https(&self) -> bool {
        self.0.scheme() == "https"
    }
}

/// A URL with a place for a key in its path or query.
#[derive(Clone, Debug)]
pub(super) struct InquiryTarget {
    template: String,
    https: bool,
}

impl InquiryTarget {
    pub(super) fn parse(template: &str, allow_http: bool, allowed: &Allowed) -> Result<Self, Problem> {
        let setting = "inquiry_url";
        if template.matches(PLACE).count() != 1 || template.contains(STAND_IN) {
            return Err(Problem::new(setting, format!("must hold {PLACE} once, where the key belongs")));
        }
        let target = Target::parse(setting, &template.replace(PLACE, STAND_IN), allow_http, allowed)?;
        let url = target.url();
        let behind_host =
            url.path().contains(STAND_IN) || url.query().is_some_and(|query| query.contains(STAND_IN));
        if !behind_host {
            return Err(Problem::new(setting, format!("must hold {PLACE} in its path or query")));
        }
        Ok(Self { template: String::from(url), https: target.is_https() })
    }

    /// The URL that asks about this key.
    pub(super) fn url(&self, key: &str) -> Result<Url, Invalid> {
        let text = self.template.replace(STAND_IN, &utf8_percent_encode(key, KEPT).to_string());
        // A key such as ".." would ask about another path: what the parser changes is not what was meant.
        Url::parse(&text).ok().filter(|url| url.as_str() == text).ok_or_else(|| Invalid {
            message: "idempotency_key must be more than dots, since it travels in a path".to_owned(),
        })
    }

    pub(super) fn is_https(&self) -> bool {
        self.https
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn target(text: &str, allow_http: bool, allow: &[&str]) -> Result<Target, String> {
        let allow: Vec<String> = allow.iter().map(|&entry| entry.to_owned()).collect();
        let allowed = Allowed::parse(&allow).unwrap();
        Target::parse("url", text, allow_http, &allowed).map_err(|problem| problem.of("sepa").to_string())
    }

    fn template(text: &str) -> Result<InquiryTarget, String> {
        let allowed = Allowed::parse(&[]).unwrap();
        InquiryTarget::parse(text, false, &allowed).map_err(|problem| problem.of("sepa").to_string())
    }

    #[test]
    fn only_https_is_asked_unless_the_settings_say_otherwise() {
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
    fn a_key_takes_its_place_in_path_or_query_and_nowhere_else() {
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
        #![proptest_config(crate::cases::cases())]

        #[test]
        fn no_key_leads_elsewhere(key in "\\PC{1,40}") {
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
