//! Who asks, and what they may: bearer tokens with scopes, held as hashes.
//!
//! Without tokens the console is open, and then only to the machine itself: the listener must be on loopback, and the request must
//! name a loopback host, so that a page of somebody else's whose name leads to 127.0.0.1 is turned away.

use axum::http::{HeaderMap, header};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq as _;

use crate::failure::Failure;

/// How a hash is written in the settings.
const PREFIX: &str = "sha256:";
/// What a token begins with, so that scanners for leaked secrets know one.
const MARK: &str = "sym_";

/// What stands in the place of who did something, for those who may not know.
pub(crate) const HIDDEN: &str = "(not for this scope)";

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Scope {
    /// Everything but payloads, the log of operations, and who did what.
    Read,
    /// Actions, and all that `read` has.
    Operate,
    /// Payloads and the log of operations, and all that `read` has.
    Audit,
}

impl Scope {
    /// As it is written in settings and in the API's description.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Audit => "audit",
        }
    }
}

/// A token as the settings name it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Section {
    name: String,
    hash: String,
    scopes: Vec<Scope>,
}

/// Somebody who may ask.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The name of the token; none where the console is open.
    pub(crate) name: Option<String>,
    scopes: Vec<Scope>,
}

impl Caller {
    /// Who is on the same machine, where there are no tokens.
    fn local() -> Self {
        Self { name: None, scopes: vec![Scope::Read, Scope::Operate, Scope::Audit] }
    }

    pub(crate) fn may(&self, scope: Scope) -> bool {
        !self.scopes.is_empty() && (scope == Scope::Read || self.scopes.contains(&scope))
    }

    /// Whether they may know who did what, and why.
    pub(crate) fn may_know_people(&self) -> bool {
        self.may(Scope::Audit) || self.may(Scope::Operate)
    }

    /// How they are named in the log of operations: by their token, and as they call themselves.
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

/// Who may ask at all.
pub(crate) struct Access {
    tokens: Vec<Token>,
}

impl Access {
    /// Reads the tokens. Without any, the address must be one that only this machine reaches.
    pub(crate) fn new(sections: &[Section], on_loopback: bool) -> Result<Self, Failure> {
        if sections.is_empty() && !on_loopback {
            return Err(Failure::usage("the console would be open to everybody who reaches relayer.endpoints")
                .hint("make a token with: symphony token NAME, and add what it prints to the settings; or listen on 127.0.0.1"));
        }
        let mut tokens: Vec<Token> = Vec::new();
        for (number, section) in (1..).zip(sections) {
            // By its place: a token may stand where its name belongs.
            let wrong = |what: &str| Failure::usage(format!("console.tokens: number {number}: {what}"));
            let name = section.name.trim();
            if name.is_empty() || name.chars().count() > 60 || name.chars().any(char::is_control) {
                return Err(wrong("a name has 1 to 60 characters"));
            }
            if section.scopes.is_empty() {
                return Err(
                    wrong("scopes are missing").hint("write one or more of \"read\", \"operate\" and \"audit\"")
                );
            }
            let digest = section.hash.strip_prefix(PREFIX).and_then(|hash| URL_SAFE_NO_PAD.decode(hash).ok());
            let digest = digest.and_then(|digest| digest.try_into().ok()).ok_or_else(|| {
                wrong("the hash is not one")
                    .hint("make a token with: symphony token NAME, and take the hash that it prints")
            })?;
            if tokens.iter().any(|token| token.name == name || token.digest == digest) {
                return Err(wrong("another token has this name or hash"));
            }
            tokens.push(Token { name: name.to_owned(), digest, scopes: section.scopes.clone() });
        }
        Ok(Self { tokens })
    }

    /// Whether nobody has to show a token.
    pub(crate) fn is_open(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Who shows this token. Takes as long whichever it is, and whether or not it is one.
    pub(crate) fn holder(&self, shown: &str) -> Option<Caller> {
        let digest: [u8; 32] = Sha256::digest(shown.as_bytes()).into();
        let mut holder = None;
        for token in &self.tokens {
            if bool::from(token.digest.ct_eq(&digest)) {
                holder = Some(Caller { name: Some(token.name.clone()), scopes: token.scopes.clone() });
            }
        }
        holder
    }

    /// Who asks the API: by a bearer token, or from this machine where there are none.
    pub(crate) fn caller(&self, headers: &HeaderMap) -> Option<Caller> {
        if self.is_open() {
            return Some(Caller::local());
        }
        let shown = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = shown.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| self.holder(token.trim()))?
    }
}

/// A token that nobody can guess, and the hash that the settings hold.
pub(crate) fn mint() -> Result<(String, String), Failure> {
    let mut secret = [0_u8; 32];
    getrandom::fill(&mut secret)
        .map_err(|error| Failure::no(format!("this machine has no randomness to give: {error}")))?;
    let token = format!("{MARK}{}", URL_SAFE_NO_PAD.encode(secret));
    let hash = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(Sha256::digest(token.as_bytes())));
    Ok((token, hash))
}

/// Whether the request was meant for this machine by a name that no other name server can give away.
pub(crate) fn names_loopback(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(header::HOST).and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.chars().all(|c| c.is_ascii_digit()) => name,
        _ => host,
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]")
}

/// Whether a request that changes something comes from a page of ours, as far as a browser says where it comes from.
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

/// Somebody with a token of this name, for tests.
#[cfg(test)]
pub(crate) fn holder_of_a_new_token(name: &str) -> Caller {
    Caller { name: Some(name.to_owned()), scopes: vec![Scope::Read] }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(name: &str, hash: &str, scopes: &[Scope]) -> Section {
        Section { name: name.to_owned(), hash: hash.to_owned(), scopes: scopes.to_vec() }
    }

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| ((*name).parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_token_opens_what_its_scopes_say_and_nothing_else_does() {
        let (token, hash) = mint().unwrap();
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
        let (_, hash) = mint().unwrap();
        let read = [Scope::Read];
        for sections in [
            vec![section("", &hash, &read)],
            vec![section("a", &hash, &[])],
            vec![section("a", "sha256:abc", &read)],
            vec![section("a", hash.trim_start_matches(PREFIX), &read)],
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
