//! Bearer tokens with scopes. The settings hold only their SHA-256.
//!
//! Without tokens the console is open to its own machine only. The listener must be on loopback, and the request must
//! name a loopback host: a web page whose host name resolves to 127.0.0.1 (DNS rebinding) is refused.

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::Error;

/// The prefix of a token's hash in the settings.
const HASH_PREFIX: &str = "sha256:";
/// The prefix of a token, by which scanners for leaked secrets recognise it.
const TOKEN_PREFIX: &str = "sym_";

/// Replaces the names of operators for callers without the scope to see them.
pub(crate) const HIDDEN: &str = "(needs scope operate or audit)";

/// Refuses a form or an action that a page of another site sent.
pub(crate) const FOREIGN_ORIGIN: &str =
    "the request comes from a page of another site: open the dashboard itself and try again";

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read everything except payloads, the audit log, and who did what and why.
    Read,
    /// What `read` allows; act; see who did what to an outbox.
    Operate,
    /// What `read` allows; see payloads and the audit log; export.
    Audit,
}

impl Scope {
    /// The name in the settings and in the API's description.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Audit => "audit",
        }
    }
}

/// One entry of `console.tokens` in the settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenConfig {
    name: String,
    hash: String,
    scopes: Vec<Scope>,
}

/// The authenticated caller of a request.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of the token; none if the console has no tokens.
    pub(crate) name: Option<String>,
    scopes: Vec<Scope>,
}

impl Caller {
    /// The caller of a console without tokens, which has all scopes.
    fn local() -> Self {
        Self { name: None, scopes: vec![Scope::Read, Scope::Operate, Scope::Audit] }
    }

    pub(crate) fn may(&self, scope: Scope) -> bool {
        !self.scopes.is_empty() && (scope == Scope::Read || self.scopes.contains(&scope))
    }

    /// Whether this caller may see which operator did what, and why.
    pub(crate) fn may_see_operators(&self) -> bool {
        self.may(Scope::Audit) || self.may(Scope::Operate)
    }

    /// The actor in the audit log: the name of the token, and the name that the operator typed.
    pub(crate) fn actor(&self, typed: &str) -> String {
        let typed = typed.trim();
        match &self.name {
            Some(name) if typed.is_empty() => name.clone(),
            Some(name) => format!("{name}: {typed}"),
            None => typed.to_owned(),
        }
    }
}

struct Token {
    name: String,
    digest: [u8; 32],
    scopes: Vec<Scope>,
}

/// The configured tokens.
pub(crate) struct Access {
    tokens: Vec<Token>,
}

impl Access {
    /// Checks the configured tokens. Without any, the listener must be on loopback.
    pub(crate) fn new(sections: &[TokenConfig], on_loopback: bool) -> Result<Self, Error> {
        if sections.is_empty() && !on_loopback {
            return Err(Error::setting(
                "the console has no tokens and listens on an address that other machines can reach",
                "create a token with: symphony token NAME, and add the lines that it prints to the settings; or listen on 127.0.0.1",
            ));
        }
        let mut tokens: Vec<Token> = Vec::new();
        for (number, section) in (1..).zip(sections) {
            // The error gives the position and not the name: a user may have put the token itself there.
            let wrong = |what: &str, hint: &'static str| {
                Error::setting(format!("console.tokens: number {number}: {what}"), hint)
            };
            let name = section.name.trim();
            if name.is_empty() || name.chars().count() > 60 || name.chars().any(char::is_control) {
                return Err(wrong(
                    "the name must have 1 to 60 characters and no control characters",
                    "name the operator or the program that uses the token",
                ));
            }
            if section.scopes.is_empty() {
                return Err(wrong("scopes are missing", "set one or more of \"read\", \"operate\" and \"audit\""));
            }
            let digest = section.hash.strip_prefix(HASH_PREFIX).and_then(|hash| URL_SAFE_NO_PAD.decode(hash).ok());
            let digest = digest.and_then(|digest| digest.try_into().ok()).ok_or_else(|| {
                wrong(
                    "the hash is not a SHA-256 of this form: sha256:…",
                    "create a token with: symphony token NAME, and use the hash that it prints",
                )
            })?;
            if tokens.iter().any(|token| token.name == name || token.digest == digest) {
                return Err(wrong("another token has this name or hash", "create one token per name"));
            }
            tokens.push(Token { name: name.to_owned(), digest, scopes: section.scopes.clone() });
        }
        Ok(Self { tokens })
    }

    /// Whether requests need no token.
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The caller with this token. Runs in constant time, whether the token is known or not.
    pub(crate) fn caller_by_token(&self, token: &str) -> Option<Caller> {
        let digest: [u8; 32] = Sha256::digest(token.as_bytes()).into();
        let mut caller = None;
        for known in &self.tokens {
            if bool::from(known.digest.ct_eq(&digest)) {
                caller = Some(Caller { name: Some(known.name.clone()), scopes: known.scopes.clone() });
            }
        }
        caller
    }

    /// The caller of an API request: by its bearer token, or the local caller if the console has no tokens.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        if self.is_open() {
            return Some(Caller::local());
        }
        let value = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| self.caller_by_token(token.trim()))?
    }
}

/// A random token, and the hash that the settings hold.
///
/// # Errors
///
/// If the operating system provides no random bytes.
pub fn generate_token() -> Result<(String, String), Error> {
    let mut secret = [0_u8; 32];
    getrandom::fill(&mut secret).map_err(Error::Random)?;
    let token = format!("{TOKEN_PREFIX}{}", URL_SAFE_NO_PAD.encode(secret));
    let hash = format!("{HASH_PREFIX}{}", URL_SAFE_NO_PAD.encode(Sha256::digest(token.as_bytes())));
    Ok((token, hash))
}

/// Whether the Host header names this machine itself. No DNS server can make another site's page send such a name.
pub(crate) fn names_loopback(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

/// Whether a request comes from a page of this server, by the headers with which a browser names the origin.
pub(crate) fn same_origin(headers: &HeaderMap) -> bool {
    let text = |name: header::HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    if headers.get("sec-fetch-site").is_some_and(|site| site != "same-origin" && site != "none") {
        return false;
    }
    match (text(header::ORIGIN), text(header::HOST)) {
        (None, _) => true,
        (Some(origin), Some(host)) => origin.split_once("://").is_some_and(|(_, from)| from == host),
        (Some(_), None) => false,
    }
}

/// A caller with the scope `read`, for tests.
#[cfg(test)]
pub(crate) fn caller_with_token(name: &str) -> Caller {
    Caller { name: Some(name.to_owned()), scopes: vec![Scope::Read] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str, hash: &str, scopes: &[Scope]) -> TokenConfig {
        TokenConfig { name: name.to_owned(), hash: hash.to_owned(), scopes: scopes.to_vec() }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_opens_what_its_scopes_say_and_nothing_else_does() {
        let (token, hash) = generate_token().unwrap();
        let access = Access::new(&[section("ana", &hash, &[Scope::Operate])], false).unwrap();
        let asked = |value: &str| access.caller(&headers(&[("authorization", value)]));
        let caller = asked(&format!("Bearer {token}")).unwrap();
        assert!(caller.may(Scope::Read) && caller.may(Scope::Operate) && !caller.may(Scope::Audit));
        assert_eq!((caller.actor(" on call "), caller.actor("")), ("ana: on call".to_owned(), "ana".to_owned()));
        for wrong in [hash.as_str(), "Bearer ", &format!("Basic {token}"), &format!("Bearer {token}x"), &token] {
            assert!(asked(wrong).is_none(), "{wrong}");
        }
        assert!(access.caller(&HeaderMap::new()).is_none());
    }

    #[test]
    fn without_tokens_it_is_open_on_loopback_alone() {
        assert!(Access::new(&[], false).is_err());
        assert!(Access::new(&[], true).unwrap().caller(&HeaderMap::new()).unwrap().may(Scope::Operate));
    }

    #[test]
    fn settings_that_cannot_be_meant_are_refused() {
        let (_, hash) = generate_token().unwrap();
        let read = [Scope::Read];
        for sections in [
            vec![section("", &hash, &read)],
            vec![section("a", &hash, &[])],
            vec![section("a", "sha256:abc", &read)],
            vec![section("a", hash.trim_start_matches(HASH_PREFIX), &read)],
            vec![section("a", &hash, &read), section("b", &hash, &read)],
        ] {
            assert!(Access::new(&sections, true).is_err(), "{sections:?}");
        }
    }

    #[test]
    fn only_names_of_this_machine_are_loopback() {
        for (host, is) in [
            ("localhost", true),
            ("localhost:9464", true),
            ("127.0.0.1:9464", true),
            ("[::1]:9464", true),
            ("evil.example", false),
            ("localhost.evil.example:9464", false),
            ("127.0.0.1.evil.example", false),
            ("", false),
        ] {
            assert_eq!(names_loopback(&headers(&[("host", host)])), is, "{host}");
        }
        assert!(!names_loopback(&HeaderMap::new()));
    }

    #[test]
    fn a_request_from_another_site_is_known() {
        let host = ("host", "127.0.0.1:9464");
        assert!(same_origin(&headers(&[host])));
        assert!(same_origin(&headers(&[host, ("origin", "http://127.0.0.1:9464")])));
        for from in ["http://evil.example", "null", "http://127.0.0.1:1", "https://127.0.0.1"] {
            assert!(!same_origin(&headers(&[host, ("origin", from)])), "{from}");
        }
        assert!(!same_origin(&headers(&[host, ("sec-fetch-site", "cross-site")])));
    }
}
