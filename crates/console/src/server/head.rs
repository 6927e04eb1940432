//! Checks of the request head: an unknown host name, a body without a length or with too large a one.

use std::net::{Ipv4Addr, Ipv6Addr};

use axum::http::{Request, StatusCode, Version, header};

use crate::Error;
use crate::problem::Problem;

/// The largest request body, in bytes.
pub(crate) const MAX_BODY_BYTES: usize = 64 * 1024;

/// The host names that the server answers, in addition to IP addresses and localhost.
///
/// A foreign web page can resolve its own host name to this server (DNS rebinding) and then read responses. It cannot
/// use an IP address or `localhost` as its name.
#[derive(Clone, Debug, Default)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Parses the names in the settings: without a port.
    /// # Errors
    ///
    /// If one of them is not a host name.
    pub fn parse(names: &[String]) -> Result<Self, Error> {
        let canonical = |name: &String| {
            let canonical = canonical_name(name.trim());
            let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
            if canonical.is_empty() || canonical.len() > 253 || !canonical.chars().all(is_name) {
                return Err(Error::setting(
                    format!("relayer.hosts: {name:?} is not a host name"),
                    "write only names such as \"symphony.example.com\": no scheme, no port, no wildcard",
                ));
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

/// Checks the head of a request.
pub(super) fn check<B>(request: &Request<B>, hosts: &Hosts) -> Result<(), Problem> {
    check_host(request, hosts)?;
    let headers = request.headers();
    if headers.contains_key(header::TRANSFER_ENCODING) {
        let detail = "the body has no Content-Length: send one, without Transfer-Encoding";
        return Err(Problem::new(StatusCode::LENGTH_REQUIRED, detail));
    }
    let length = headers.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
    if length.is_some_and(|length| length > u64::try_from(MAX_BODY_BYTES).unwrap_or(u64::MAX)) {
        return Err(too_large(MAX_BODY_BYTES));
    }
    Ok(())
}

/// The body is too large: 413.
pub(crate) fn too_large(limit: usize) -> Problem {
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, format!("the body is too large: send at most {limit} bytes"))
}

fn check_host<B>(request: &Request<B>, hosts: &Hosts) -> Result<(), Problem> {
    let mut names = request.headers().get_all(header::HOST).iter();
    let (name, second) = (names.next(), names.next());
    if second.is_some() {
        return Err(Problem::bad_request("the request has more than one Host header: send one"));
    }
    // Load balancers probe with HTTP/1.0 without a Host. No browser does, so no page of another site can.
    let is_from_no_browser = name.is_none() && request.version() == Version::HTTP_10;
    let authority = request.uri().authority().map(axum::http::uri::Authority::as_str);
    let header = match name {
        Some(name) => Some(name.to_str().unwrap_or_default()),
        None if is_from_no_browser => None,
        None => return Err(Problem::bad_request("the request has no Host header: send one")),
    };
    match [header, authority].into_iter().flatten().find(|name| !hosts.allow(name)) {
        None => Ok(()),
        Some(_) => Err(Problem::new(
            StatusCode::MISDIRECTED_REQUEST,
            "this host name is not configured: use an IP address or localhost, or add the name to relayer.hosts",
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
    fn a_setting_that_is_not_a_host_name_is_refused() {
        for name in ["", " ", "http://a", "a:80", "*", "*.example", "a b", "[::1]", "a/b"] {
            assert!(Hosts::parse(&[name.to_owned()]).is_err(), "{name}");
        }
    }

    #[test]
    fn a_request_without_a_host_is_answered_only_with_http_1_0() {
        let asked = |version| Request::builder().uri("/healthz").version(version).body(()).unwrap();
        assert!(check(&asked(Version::HTTP_10), &Hosts::default()).is_ok());
        assert!(check(&asked(Version::HTTP_11), &Hosts::default()).is_err());
    }
}
