//! Where a database URL leads, and the same URL by another way.

use tokio_postgres::Config;
use tokio_postgres::config::Host;

use super::port::HOST;

/// Why a URL cannot be led another way. It is not shown: there may be a password in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the address has to be a URL with one host and a port, such as postgres://user@127.0.0.1:5432/database")]
pub struct Unusable;

/// The host and the port of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Address {
    /// Where this URL leads.
    pub(crate) fn of(url: &str) -> Result<Self, Unusable> {
        let config: Config = url.parse().map_err(|_| Unusable)?;
        match (config.get_hosts(), config.get_ports()) {
            ([Host::Tcp(host)], [port]) => Ok(Self { host: host.clone(), port: *port }),
            _ => Err(Unusable),
        }
    }
}

/// The same user and database, by way of this port on the loopback address.
pub(crate) fn by_way_of(url: &str, port: u16) -> Result<String, Unusable> {
    let (scheme, rest) = url.split_once("://").ok_or(Unusable)?;
    let (authority, path) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let login = authority.rfind('@').map_or("", |at| &authority[..=at]);
    Ok(format!("{scheme}://{login}{HOST}:{port}{path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_led_another_way_with_its_user_and_its_database() {
        let url = "postgres://me:p%40ss@10.0.0.1:5432/shop?connect_timeout=3";
        assert_eq!(Address::of(url), Ok(Address { host: "10.0.0.1".into(), port: 5432 }));
        assert_eq!(by_way_of(url, 99).unwrap(), "postgres://me:p%40ss@127.0.0.1:99/shop?connect_timeout=3");
        assert_eq!(by_way_of("postgres://localhost:1", 2).unwrap(), "postgres://127.0.0.1:2");
    }

    #[test]
    fn an_address_of_two_hosts_or_of_a_socket_is_refused() {
        for unusable in ["postgres://one:1,two:2/shop", "host=/tmp port=5", "no address"] {
            assert_eq!(Address::of(unusable), Err(Unusable), "{unusable}");
        }
    }
}
