//! A connection from a libpq-style URL or list of `name=value`, with TLS by rustls.
//!
//! This decides how a session is encrypted and whom it believes the server to be. Everything else in the address
//! (several hosts, `target_session_attrs`, keepalives) is for tokio-postgres, which does not know `verify-ca`,
//! `verify-full` nor the files of certificates. An error never shows a password.
//!
//! # Layout
//! - `address`: takes apart what a person wrote
//! - `tls`: whom to believe, and who we say we are

mod address;
mod tls;

use std::{path::PathBuf, time::Duration};

use tokio_postgres::{Client, Config, config::Host, config::SslMode, error::SqlState};
use tokio_postgres_rustls::MakeRustlsConnect;

pub use address::redact;
use address::{Address, Mode};

/// How long one host may take, unless the address says otherwise with `connect_timeout`.
const TIMEOUT: Duration = Duration::from_secs(10);
const APPLICATION: &str = "symphony";

/// Why there is no connection. The address is shown without its password.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be understood. Correct it.
    #[error("the database URL cannot be used: {reason}")]
    Address {
        /// What is wrong with it.
        reason: String,
    },
    /// A file that the address names cannot be used. Correct the file or its name.
    #[error("{setting}={} cannot be used", path.display())]
    File {
        /// The setting that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server was not reached, or it refused. The source says which.
    #[error("cannot connect to {place}")]
    Connect {
        /// Where the server was looked for.
        place: String,
        /// What happened.
        source: tokio_postgres::Error,
    },
    /// The server did not answer. Is it there? `connect_timeout` in the address sets how long to wait.
    #[error("{place} did not answer within {limit:?}")]
    Silent {
        /// Where the server was looked for.
        place: String,
        /// How long was waited.
        limit: Duration,
    },
}

/// A database, and how to reach it.
#[derive(Clone)]
pub struct Target {
    config: Config,
    mode: Mode,
    tls: MakeRustlsConnect,
}

impl Target {
    /// Understands `postgres://user@host:port/database?sslmode=…` and `host=… dbname=… sslmode=…`.
    ///
    /// # Errors
    /// When it is neither, or names a certificate that cannot be read. The database is not asked.
    pub fn parse(address: &str) -> Result<Self, Error> {
        let Address { mut config, mode, root, identity } = address::parse(address)?;
        if config.get_hosts().is_empty() {
            // An address alone is a host whose name is that address.
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        if config.get_hosts().is_empty() {
            return Err(Error::Address { reason: "it names no host".into() });
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name(APPLICATION);
        }
        // As in libpq: sockets are not encrypted, whatever was asked.
        let mode =
            if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) { Mode::Disable } else { mode };
        let tls = MakeRustlsConnect::new(tls::client(mode, root, identity)?);
        Ok(Self { config, mode, tls })
    }

    /// The same server and user, another database.
    #[must_use]
    pub fn database(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.config.dbname(name);
        other
    }

    /// What a person may see of it: where, which database, which user. Never a password.
    #[must_use]
    pub fn place(&self) -> String {
        let ports = self.config.get_ports();
        let host = |(i, host): (usize, &Host)| {
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(folder) => format!("{}:{port}", folder.display()),
            }
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().enumerate().map(host).collect();
        let database = self.config.get_dbname().or(self.config.get_user()).unwrap_or("the user's own");
        let user = self.config.get_user().map(|user| format!(" as {user}")).unwrap_or_default();
        format!("{}, database {database}{user}", hosts.join(","))
    }

    /// Opens a session. It ends when the client is dropped; the runtime must be tokio's.
    ///
    /// # Errors
    /// When the server is not reached in time, or refuses.
    pub async fn connect(&self) -> Result<Client, Error> {
        match self.mode {
            Mode::Disable => self.open(SslMode::Disable).await,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => self.open(SslMode::Require).await,
            Mode::Prefer => match self.open(SslMode::Prefer).await {
                // A server may let this user in without encryption alone. A handshake that failed is another
                // matter: no password is sent in the clear because somebody broke it.
                Err(error) if not_this_way(&error) => self.open(SslMode::Disable).await.map_err(|_| error),
                done => done,
            },
            Mode::Allow => match self.open(SslMode::Disable).await {
                Err(error) if not_this_way(&error) => self.open(SslMode::Require).await,
                done => done,
            },
        }
    }

    async fn open(&self, mode: SslMode) -> Result<Client, Error> {
        let mut config = self.config.clone();
        config.ssl_mode(mode);
        let hosts = u32::try_from(config.get_hosts().len()).unwrap_or(u32::MAX);
        let limit = config.get_connect_timeout().copied().unwrap_or(TIMEOUT).saturating_mul(hosts);
        let (client, connection) = tokio::time::timeout(limit, config.connect(self.tls.clone()))
            .await
            .map_err(|_| Error::Silent { place: self.place(), limit })?
            .map_err(|source| Error::Connect { place: self.place(), source })?;
        // What the connection has to say when it breaks, the client says as well.
        tokio::spawn(connection);
        Ok(client)
    }
}

/// Whether the server has no entry for this user with, or without, encryption.
fn not_this_way(error: &Error) -> bool {
    matches!(error, Error::Connect { source, .. }
        if source.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_names_host_database_and_user_and_never_the_password() {
        let target = Target::parse("postgres://app:s3cret@db1:5433,db2:5434/shop").unwrap();
        assert_eq!(target.place(), "db1:5433,db2:5434, database shop as app");
        assert_eq!(target.database("other").place(), "db1:5433,db2:5434, database other as app");
    }

    #[test]
    fn without_a_host_nothing_is_guessed() {
        let refusal = Target::parse("dbname=shop").err().unwrap().to_string();
        assert!(refusal.contains("names no host"), "{refusal}");
    }

    #[test]
    fn sockets_are_never_encrypted() {
        assert_eq!(Target::parse("host=/run/postgresql sslmode=require").unwrap().mode, Mode::Disable);
    }

    #[tokio::test]
    async fn a_server_that_never_answers_is_given_up() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let url = format!("postgres://me:s3cret@127.0.0.1:{port}/x?connect_timeout=1");
        let error = Target::parse(&url).unwrap().connect().await.err().unwrap();
        assert!(matches!(error, Error::Silent { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }
}
