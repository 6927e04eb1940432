//! Parses the host and port of a database URL, and rewrites a URL to go through a local proxy.

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::port::HOST;

/// The URL does not have exactly one host and port. The error does not show the URL, because it may hold a password.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a URL with one host and port, such as postgres://user@127.0.0.1:5432/database")]
pub struct InvalidDatabaseUrl;

/// The host and the port of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// The host and port of this URL.
    pub(crate) fn of(url: &str) -> Result<Self, InvalidDatabaseUrl> {
        let config: Config = url.parse().map_err(|_| InvalidDatabaseUrl)?;
        match (config.get_hosts(), config.get_ports()) {
            ([Host::Tcp(host)], [port]) => Ok(Self { host: host.clone(), port: *port }),
            _ => Err(InvalidDatabaseUrl),
        }
    }
}

/// Replaces the host and port by this port on the loopback address. User and database stay.
pub(crate) fn rewrite_url(url: &str, port: u16) -> Result<String, InvalidDatabaseUrl> {
    let (scheme, rest) = url.split_once("://").ok_or(InvalidDatabaseUrl)?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let login = authority.rfind('@').map_or("", |at| &authority[..=at]);
    Ok(format!("{scheme}://{login}{HOST}:{port}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rewritten_url_keeps_its_user_and_its_database() {
        let url = "postgres://me:p%40ss@10.0.0.1:5432/shop?connect_timeout=3";
        assert_eq!(Address::of(url), Ok(Address { host: "10.0.0.1".into(), port: 5432 }));
        assert_eq!(rewrite_url(url, 99).unwrap(), "postgres://me:p%40ss@127.0.0.1:99/shop?connect_timeout=3");
        assert_eq!(rewrite_url("postgres://localhost:1", 2).unwrap(), "postgres://127.0.0.1:2");
    }

    #[test]
    fn a_url_with_two_hosts_or_with_a_socket_is_refused() {
        for invalid in ["postgres://one:1,two:2/shop", "host=/tmp port=5", "no address"] {
            assert_eq!(Address::of(invalid), Err(InvalidDatabaseUrl), "{invalid}");
        }
    }
}
