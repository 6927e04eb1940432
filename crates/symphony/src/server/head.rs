//! What is refused by the head of a request alone: a name that is not ours, a body without a length or with too much of it.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{Request, StatusCode, Version, header};

use crate::console::problem::Problem;
use crate::failure::Failure;

/// Bytes of the largest body that any route takes.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;

/// The names under which a server answers, beside addresses and localhost.
///
/// A page of another site can be given a name that leads here (DNS rebinding), and then reads what it likes. It cannot be given an
/// address or `localhost` as its name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Hosts(Vec<String>);

impl Hosts {
    /// Reads names as the settings give them: without a port.
    pub(crate) fn parse(names: &[String]) -> Result<Self, Failure> {
        let canonical = |name: &String| {
            let canonical = canonical_name(name.trim());
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if canonical.is_empty() || canonical.len() > 253 || !canonical.chars().all(is_name) {
                return Err(Failure::usage(format!("relayer.hosts: {name:?} is not the name of a host"))
                    .hint("write names alone, as \"symphony.example.com\": no scheme, no port, no wildcard"));
            }
            Ok(canonical)
        };
        names.iter().map(canonical).collect::<Result<_, _>>().map(Self)
    }

    fn allow(&self, authority: &str) -> bool {
        let name = match authority.rsplit_once(':') {
            Some((name, port)) if !name.is_empty() && port.chars().all(|c| c.is_ascii_digit()) => name,
            _ => authority,
        };
        let in_brackets = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        if let Some(address) = in_brackets {
            return address.parse::<Ipv6Addr>().is_ok();
        }
        let name = canonical_name(name);
        name == "localhost" || name.parse::<Ipv4Addr>().is_ok() || self.0.contains(&name)
    }
}

fn canonical_name(name: &str) -> String {
    name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase()
}

/// Refuses a request by its head.
pub(super) fn check<B>(request: &Request<B>, hosts: &Hosts) -> Result<(), Problem> {
    check_host(request, hosts)?;
    let headers = request.headers();
    if headers.contains_key(header::TRANSFER_ENCODING) {
        let detail = "send the body with a Content-Length, and without Transfer-Encoding";
        return Err(Problem::new(StatusCode::LENGTH_REQUIRED, detail));
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > u64::try_from(MAX_BODY_BYTES).unwrap_or(u64::MAX)) {
        return Err(too_large(MAX_BODY_BYTES));
    }
    Ok(())
}

/// A body that has more bytes than it may.
pub(crate) fn too_large(limit: usize) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("this body may have {limit} bytes"))
}

fn check_host<B>(request: &Request<B>, hosts: &Hosts) -> Result<(), Problem> {
    let mut names = request.headers().get_all(header::HOST).iter();
    let (name, second) = (names.next(), names.next());
    if second.is_some() {
        return Err(Problem::bad("a request has one Host"));
    }
    // Load balancers probe by HTTP/1.0 without a Host. No browser does, so no page of another site can.
    let is_from_no_browser = name.is_none() && request.version() == Version::HTTP_10;
    let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
    let header = match name {
        Some(name) => Some(name.to_str().unwrap_or_default()),
        None if is_from_no_browser => None,
        None => return Err(Problem::bad("a request names its Host")),
    };
    match [header, authority].into_iter().flatten().find(|name| !hosts.allow(name)) {
        None => Ok(()),
        Some(_) => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "this server answers under its addresses, under localhost, and under the names in relayer.hosts",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_localhost_and_configured_names_are_allowed_and_nothing_else() {
        let hosts = Hosts::parse(&["Symphony.example.com.".to_owned(), "relay-1".to_owned()]).unwrap();
        for name in [
            "localhost",
            "LocalHost:9464",
            "127.0.0.1",
            "10.0.0.7:9464",
            "[::1]",
            "[fd00::7]:9464",
            "symphony.EXAMPLE.com",
            "symphony.example.com.:443",
            "relay-1:9464",
        ] {
            assert!(hosts.allow(name), "{name}");
        }
        for name in [
            "",
            ":9464",
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.evil.example",
            "x.symphony.example.com",
            "symphony.example.com.evil.example",
            "[::1].evil.example",
            "[evil]",
            "::1",
            "localhost:x",
            "127.0.0.1:1:2",
            "a@localhost",
            "0x7f.1",
        ] {
            assert!(!hosts.allow(name), "{name}");
        }
    }

    #[test]
    fn a_setting_that_is_no_name_is_refused() {
        for name in ["", " ", "http://a", "a:80", "*", "*.example", "a b", "[::1]", "a/b"] {
            assert!(Hosts::parse(&[name.to_owned()]).is_err(), "{name}");
        }
    }

    #[test]
    fn a_request_without_a_name_is_answered_as_http_1_0_alone() {
        let asked = |version| Request::builder().uri("/healthz").version(version).body(()).unwrap();
        assert!(check(&asked(Version::HTTP_10), &Hosts::default()).is_ok());
        assert!(check(&asked(Version::HTTP_11), &Hosts::default()).is_err());
    }
}
