//! Connects to PostgreSQL by a libpq-style URL or list of `name=value`, with TLS by rustls.
//!
//! This module handles sslmode, root certificates and client certificates, because tokio-postgres has neither
//! `verify-ca`, `verify-full` nor certificate files. tokio-postgres handles the other settings, such as
//! `target_session_attrs` and keepalives. An error never shows a password.
//!
//! # Layout
//! - `address`: parses the address, and redacts passwords
//! - `backend_pid`: the process id that the server sent, which detects a pooler
//! - `environment`: the PG… variables of libpq
//! - `password`: passwords from files
//! - `hosts`: tries several hosts, so that a dead one does not delay the next
//! - `session`: a connection with prepared statements
//! - `tls`: verifies the server's certificate, and sends the client's

mod address;
mod backend_pid;
mod environment;
mod hosts;
mod password;
mod session;
mod tls;

use std::{
    fmt, future,
    path::PathBuf,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Socket, config::Host, config::SslMode, error::SqlState,
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;

use address::{Address, Mode};
pub use address::{percent_encode, redact};
pub use environment::Environment;
use password::PasswordSource;
pub use session::Session;

/// The timeout per host, unless the address sets `connect_timeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const APPLICATION_NAME: &str = "symphony";

/// A client, and the connection task that drives it.
type Connected = (Client, Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>);

/// Why a connection failed. The message shows the address without its password.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The address cannot be parsed. Correct it.
    #[error("the database URL cannot be used: {reason}")]
    Address {
        /// What is wrong with it.
        reason: String,
    },
    /// A certificate or key file of the address cannot be used. Correct the file or its path.
    #[error("{setting}={} cannot be used", path.display())]
    File {
        /// The setting that names the file.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server was not reached, or it refused. The source says which.
    #[error("cannot connect to {target}")]
    Connect {
        /// Host, database and user, without the password.
        target: String,
        /// What happened.
        source: tokio_postgres::Error,
    },
    /// The server did not answer in time. `connect_timeout` in the address sets the limit.
    #[error("{target} did not answer within {limit:?}")]
    Timeout {
        /// Host, database and user, without the password.
        target: String,
        /// The timeout.
        limit: Duration,
    },
}

/// The address of a database, with login and TLS settings.
#[derive(Clone)]
pub struct Target {
    config: Config,
    mode: Mode,
    tls: MakeRustlsConnect,
    /// The settings of the address that this crate reads, encoded for a URL.
    own_settings: Vec<String>,
    /// Read for each connection, if the address has no password.
    password: PasswordSource,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.describe()).finish()
    }
}

impl Target {
    /// Parses `postgres://user@host:port/database?sslmode=…` and `host=… dbname=… sslmode=…`.
    ///
    /// # Errors
    /// If it is neither, or names a certificate that cannot be read. This opens no connection.
    pub fn parse(address: &str) -> Result<Self, Error> {
        Self::parse_in(address, &Environment::default())
    }

    /// Does the same as [`Target::parse`], with these defaults for what the address leaves out. It may be empty if they name a
    /// server.
    ///
    /// # Errors
    /// As [`Target::parse`].
    pub fn parse_in(address: &str, environment: &Environment) -> Result<Self, Error> {
        let Address { mut config, mode, root, identity, own_settings, password } =
            address::parse(address, environment)?;
        if config.get_hosts().is_empty() {
            // `hostaddr` without `host`.
            for address in config.get_hostaddrs().to_vec() {
                config.host(address.to_string());
            }
        }
        if config.get_hosts().is_empty() {
            return Err(Error::Address { reason: "it names no host".into() });
        }
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name(APPLICATION_NAME);
        }
        // As in libpq: Unix sockets are not encrypted, whatever sslmode says.
        let mode =
            if config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_))) { Mode::Disable } else { mode };
        let tls = MakeRustlsConnect::new(tls::client(mode, root, identity)?);
        Ok(Self { config, mode, tls, own_settings, password })
    }

    /// The same server and user, another database.
    #[must_use]
    pub fn database(&self, name: &str) -> Self {
        let mut other = self.clone();
        other.config.dbname(name);
        other
    }

    /// The same server and database, another user.
    #[must_use]
    pub fn login(&self, user: &str, password: &str) -> Self {
        let mut other = self.clone();
        other.config.user(user).password(password);
        other
    }

    /// The same server, database and user, with this password.
    #[must_use]
    pub fn with_password(&self, password: &str) -> Self {
        let mut other = self.clone();
        other.config.password(password);
        other
    }

    /// The same with the password in this file, which is read for each connection.
    ///
    /// # Errors
    /// If the file has no password that can be read, or the address has one too.
    pub fn with_password_file(&self, path: impl Into<PathBuf>) -> Result<Self, Error> {
        if self.has_password() {
            let reason = "it has a password, and password_file is set: keep one".to_owned();
            return Err(Error::Address { reason });
        }
        let mut other = self.clone();
        other.password = PasswordSource::File(path.into());
        other.password.read(&other.config)?;
        Ok(other)
    }

    /// Whether the address contains a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Whether the connection verifies the server's certificate, or uses a Unix socket.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        let local = self.config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        local || matches!(self.mode, Mode::VerifyCa | Mode::VerifyFull)
    }

    /// The same with further `options` (`-c name=value`), after those of the address. A pooler may not pass them on.
    #[must_use]
    pub fn with_options(&self, settings: &str) -> Self {
        let mut other = self.clone();
        let given = other.config.get_options().map(|given| format!("{given} ")).unwrap_or_default();
        other.config.options(format!("{given}{settings}"));
        other
    }

    /// The same with this `application_name`, unless the address sets one.
    #[must_use]
    pub fn with_session_name(&self, name: &str) -> Self {
        let mut other = self.clone();
        if other.config.get_application_name() == Some(APPLICATION_NAME) {
            other.config.application_name(name);
        }
        other
    }

    /// A URL for another program, with the password. Print [`Target::describe`] instead.
    #[must_use]
    pub fn url(&self) -> String {
        let ports = self.config.get_ports();
        let host = |(i, host): (usize, &Host)| {
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(folder) => format!("{}:{port}", percent_encode(&folder.to_string_lossy())),
            }
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().enumerate().map(host).collect();
        let password = self
            .config
            .get_password()
            .map(|password| format!(":{}", percent_encode(&String::from_utf8_lossy(password))));
        let user = self
            .config
            .get_user()
            .map(|user| format!("{}{}@", percent_encode(user), password.unwrap_or_default()));
        let database = self.config.get_dbname().map(percent_encode).unwrap_or_default();
        let mut settings = self.own_settings.clone();
        if let Some(limit) = self.config.get_connect_timeout().filter(|limit| **limit != CONNECT_TIMEOUT) {
            settings.push(format!("connect_timeout={}", limit.as_secs()));
        }
        if let Some(options) = self.config.get_options() {
            settings.push(format!("options={}", percent_encode(options)));
        }
        let settings = if settings.is_empty() { String::new() } else { format!("?{}", settings.join("&")) };
        format!("postgres://{}{}/{database}{settings}", user.unwrap_or_default(), hosts.join(","))
    }

    /// Hosts, database and user for messages, without the password.
    #[must_use]
    pub fn describe(&self) -> String {
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
    /// See [`Error`].
    pub async fn connect(&self) -> Result<Client, Error> {
        let (client, connection) = self.session().await?;
        // The client reports the error that ends this task.
        tokio::spawn(connection);
        Ok(client)
    }

    /// Opens a session that keeps prepared statements, unless it goes through a pooler.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn connect_session(&self) -> Result<Session, Error> {
        let is_unreplicated = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&is_unreplicated);
        let client =
            self.connect_with_messages(move |message| session::note_unreplicated(&flag, &message)).await?;
        Ok(Session::new(client, is_unreplicated).await)
    }

    /// Does the same as [`Target::connect`], and passes notifications and notices to `on_message`, in order.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn connect_with_messages(
        &self,
        mut on_message: impl FnMut(AsyncMessage) + Send + 'static,
    ) -> Result<Client, Error> {
        let (client, mut connection) = self.session().await?;
        tokio::spawn(async move {
            while let Some(Ok(message)) = future::poll_fn(|context| connection.poll_message(context)).await {
                on_message(message);
            }
        });
        Ok(client)
    }

    /// Sends a cancel request for this session's statement. The server does not say whether it cancelled it.
    pub async fn cancel(&self, client: &Client) {
        let _ = tokio::time::timeout(CONNECT_TIMEOUT, client.cancel_token().cancel_query(self.tls.clone())).await;
    }

    async fn session(&self) -> Result<Connected, Error> {
        let attempts = hosts::per_host(&self.config).into_iter().map(|config| {
            let target = Self { config, ..self.clone() };
            async move { target.session_with_host().await }
        });
        let no_host = || Error::Address { reason: "it names no host".into() };
        hosts::first_connected(attempts).await.unwrap_or_else(|| Err(no_host()))
    }

    async fn session_with_host(&self) -> Result<Connected, Error> {
        match self.mode {
            Mode::Disable => self.open(SslMode::Disable).await,
            Mode::Require | Mode::VerifyCa | Mode::VerifyFull => self.open(SslMode::Require).await,
            Mode::Prefer => match self.open(SslMode::Prefer).await {
                // pg_hba.conf may admit this user only without TLS. A failed handshake is no reason to fall back: an
                // attacker who breaks it must not get the password in clear text.
                Err(error) if is_refused_by_hba(&error) => self.open(SslMode::Disable).await.map_err(|_| error),
                result => result,
            },
            Mode::Allow => match self.open(SslMode::Disable).await {
                Err(error) if is_refused_by_hba(&error) => self.open(SslMode::Require).await,
                result => result,
            },
        }
    }

    async fn open(&self, mode: SslMode) -> Result<Connected, Error> {
        let mut config = self.config.clone();
        if config.get_password().is_none()
            && let Some(password) = self.password.read(&config)?
        {
            config.password(password);
        }
        config.ssl_mode(mode);
        let limit = config.get_connect_timeout().copied().unwrap_or(CONNECT_TIMEOUT);
        tokio::time::timeout(limit, config.connect(self.tls.clone()))
            .await
            .map_err(|_| Error::Timeout { target: self.describe(), limit })?
            .map_err(|source| Error::Connect { target: self.describe(), source })
    }
}

/// Whether pg_hba.conf has no entry for this user with, or without, TLS.
fn is_refused_by_hba(error: &Error) -> bool {
    matches!(error, Error::Connect { source, .. }
        if source.code() == Some(&SqlState::INVALID_AUTHORIZATION_SPECIFICATION))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_names_host_database_and_user_and_never_the_password() {
        let target = Target::parse("postgres://app:s3cret@db1:5433,db2:5434/shop").unwrap();
        assert_eq!(target.describe(), "db1:5433,db2:5434, database shop as app");
        assert_eq!(target.database("other").describe(), "db1:5433,db2:5434, database other as app");
    }

    #[test]
    fn a_target_changes_its_database_and_login_and_is_written_as_a_url() {
        let pairs = Target::parse("host=db port=5433 user=me password='s p@ce' sslmode=require connect_timeout=3");
        let other = pairs.unwrap().database("my shop").login("you", "w:rd");
        assert_eq!(other.url(), "postgres://you:w%3Ard@db:5433/my%20shop?sslmode=require&connect_timeout=3");
        assert!(!format!("{other:?}").contains("w:rd"));
        let parsed = Target::parse(&other.url()).unwrap();
        assert_eq!((parsed.mode, parsed.describe()), (Mode::Require, other.describe()));
        assert_eq!(parsed.config.get_password(), Some(b"w:rd".as_slice()));
        for url in
            ["postgres://root@[::1]:5433/x", "postgres://root@%2Frun%2Fpostgresql:5432/x", "postgres://h:5432/"]
        {
            assert_eq!(Target::parse(url).unwrap().url(), url);
        }
    }

    #[test]
    fn without_a_host_nothing_is_guessed() {
        let refusal = Target::parse("dbname=shop").err().unwrap().to_string();
        assert!(refusal.contains("names no host"), "{refusal}");
    }

    #[test]
    fn a_connection_without_a_verified_certificate_is_not_protected() {
        let protected = |address: &str| Target::parse(address).unwrap().is_protected();
        assert!(protected("postgres://h/x?sslrootcert=system") && protected("host=/run/postgresql"));
        for mode in ["disable", "allow", "prefer", "require"] {
            assert!(!protected(&format!("postgres://h/x?sslmode={mode}")), "{mode}");
        }
        assert!(!protected("host=/run/postgresql,db sslmode=require"));
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
        assert!(matches!(error, Error::Timeout { .. }), "{error}");
        assert!(!format!("{error} {error:?}").contains("s3cret"));
    }

    #[tokio::test]
    async fn a_host_that_says_nothing_does_not_hold_up_the_next() {
        let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let other = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = |listener: &tokio::net::TcpListener| listener.local_addr().unwrap().port();
        let url = format!(
            "postgres://me@127.0.0.1:{},127.0.0.1:{}/x?connect_timeout=600&sslmode=disable",
            port(&silent),
            port(&other)
        );
        let target = Target::parse(&url).unwrap();
        let connecting = tokio::spawn(async move { target.connect().await });
        // The timeout of the first host is ten minutes.
        let second = tokio::time::timeout(Duration::from_secs(60), other.accept()).await;
        assert!(second.is_ok(), "the second host was not tried");
        assert!(!connecting.is_finished());
        connecting.abort();
    }
}
