//! A connection from a libpq-style URL or list of `name=value`, with TLS by rustls.
//!
//! This decides how a session is encrypted and whom it believes the server to be. Everything else in the address
//! (`target_session_attrs`, keepalives) is for tokio-postgres, which does not know `verify-ca`, `verify-full` nor the files of
//! certificates. An error never shows a password.
//!
//! # Layout
//! - `address`: takes apart what a person wrote
//! - `announced`: who answers, as was said at the beginning
//! - `hosts`: several of them, so that one that is dead does not hold up the next
//! - `session`: a connection that remembers what it was asked
//! - `tls`: whom to believe, and who we say we are

mod address;
mod announced;
mod hosts;
mod session;
mod tls;

use std::{fmt, future, path::PathBuf, time::Duration};

use tokio_postgres::{
    AsyncMessage, Client, Config, Connection, Socket, config::Host, config::SslMode, error::SqlState,
    tls::MakeTlsConnect,
};
use tokio_postgres_rustls::MakeRustlsConnect;

pub use address::redact;
use address::{Address, Mode, encode};
pub use session::Session;

/// How long one host may take, unless the address says otherwise with `connect_timeout`.
const TIMEOUT: Duration = Duration::from_secs(10);
const APPLICATION: &str = "symphony";

/// A connection, and what carries it.
type Opened = (Client, Connection<Socket, <MakeRustlsConnect as MakeTlsConnect<Socket>>::Stream>);

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
    /// What was said about TLS, as it is written in a URL.
    tls_settings: Vec<String>,
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Target").field(&self.place()).finish()
    }
}

impl Target {
    /// Understands `postgres://user@host:port/database?sslmode=…` and `host=… dbname=… sslmode=…`.
    ///
    /// # Errors
    /// When it is neither, or names a certificate that cannot be read. The database is not asked.
    pub fn parse(address: &str) -> Result<Self, Error> {
        let Address { mut config, mode, root, identity, tls_settings } = address::parse(address)?;
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
        Ok(Self { config, mode, tls, tls_settings })
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

    /// Whether the address itself holds a password.
    #[must_use]
    pub fn has_password(&self) -> bool {
        self.config.get_password().is_some()
    }

    /// Whether whoever answers has been vouched for and nobody else can listen, or it is on this machine.
    #[must_use]
    pub fn is_protected(&self) -> bool {
        let local = self.config.get_hosts().iter().all(|host| matches!(host, Host::Unix(_)));
        local || matches!(self.mode, Mode::VerifyCa | Mode::VerifyFull)
    }

    /// The same with settings for its sessions, as `-c name=value`, after those that the address has. For PostgreSQL itself: a pooler may
    /// not pass them on.
    #[must_use]
    pub fn with_options(&self, settings: &str) -> Self {
        let mut other = self.clone();
        let given = other.config.get_options().map(|given| format!("{given} ")).unwrap_or_default();
        other.config.options(format!("{given}{settings}"));
        other
    }

    /// The same, with this name for its sessions; one that the address gives stays.
    #[must_use]
    pub fn with_session_name(&self, name: &str) -> Self {
        let mut other = self.clone();
        if other.config.get_application_name() == Some(APPLICATION) {
            other.config.application_name(name);
        }
        other
    }

    /// Where, who and how encrypted, as a URL for another program. It holds the password: show [`Target::place`].
    #[must_use]
    pub fn url(&self) -> String {
        let ports = self.config.get_ports();
        let host = |(i, host): (usize, &Host)| {
            let port = ports.get(i).or(ports.first()).copied().unwrap_or(5432);
            match host {
                Host::Tcp(name) if name.contains(':') => format!("[{name}]:{port}"),
                Host::Tcp(name) => format!("{name}:{port}"),
                Host::Unix(folder) => format!("{}:{port}", encode(&folder.to_string_lossy())),
            }
        };
        let hosts: Vec<_> = self.config.get_hosts().iter().enumerate().map(host).collect();
        let password =
            self.config.get_password().map(|word| format!(":{}", encode(&String::from_utf8_lossy(word))));
        let user = self.config.get_user().map(|user| format!("{}{}@", encode(user), password.unwrap_or_default()));
        let database = self.config.get_dbname().map(encode).unwrap_or_default();
        let mut settings = self.tls_settings.clone();
        if let Some(limit) = self.config.get_connect_timeout().filter(|limit| **limit != TIMEOUT) {
            settings.push(format!("connect_timeout={}", limit.as_secs()));
        }
        if let Some(options) = self.config.get_options() {
            settings.push(format!("options={}", encode(options)));
        }
        let settings = if settings.is_empty() { String::new() } else { format!("?{}", settings.join("&")) };
        format!("postgres://{}{}/{database}{settings}", user.unwrap_or_default(), hosts.join(","))
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
        let (client, connection) = self.session().await?;
        // What the connection has to say when it breaks, the client says as well.
        tokio::spawn(connection);
        Ok(client)
    }

    /// Opens a session that remembers what it was asked, unless a pooler stands between.
    ///
    /// # Errors
    /// When the server is not reached in time, or refuses.
    pub async fn connect_to_ask(&self) -> Result<Session, Error> {
        Ok(Session::over(self.connect().await?).await)
    }

    /// As [`Target::connect`], and `hear` is told what the server says unasked: notifications and notices, in order.
    ///
    /// # Errors
    /// When the server is not reached in time, or refuses.
    pub async fn connect_and_hear(
        &self,
        mut hear: impl FnMut(AsyncMessage) + Send + 'static,
    ) -> Result<Client, Error> {
        let (client, mut connection) = self.session().await?;
        tokio::spawn(async move {
            while let Some(Ok(message)) = future::poll_fn(|context| connection.poll_message(context)).await {
                hear(message);
            }
        });
        Ok(client)
    }

    /// Asks the server to end what this session is doing. Whether it did is not known.
    pub async fn cancel(&self, client: &Client) {
        let _ = tokio::time::timeout(TIMEOUT, client.cancel_token().cancel_query(self.tls.clone())).await;
    }

    async fn session(&self) -> Result<Opened, Error> {
        let tries = hosts::apart(&self.config).into_iter().map(|config| {
            let alone = Self { config, ..self.clone() };
            async move { alone.session_with_host().await }
        });
        let nobody = || Error::Address { reason: "it names no host".into() };
        hosts::first(tries).await.unwrap_or_else(|| Err(nobody()))
    }

    async fn session_with_host(&self) -> Result<Opened, Error> {
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

    async fn open(&self, mode: SslMode) -> Result<Opened, Error> {
        let mut config = self.config.clone();
        config.ssl_mode(mode);
        let limit = config.get_connect_timeout().copied().unwrap_or(TIMEOUT);
        tokio::time::timeout(limit, config.connect(self.tls.clone()))
            .await
            .map_err(|_| Error::Silent { place: self.place(), limit })?
            .map_err(|source| Error::Connect { place: self.place(), source })
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
    fn a_target_is_turned_to_another_database_and_login_and_written_as_a_url() {
        let pairs = Target::parse("host=db port=5433 user=me password='s p@ce' sslmode=require connect_timeout=3");
        let other = pairs.unwrap().database("my shop").login("you", "w:rd");
        assert_eq!(other.url(), "postgres://you:w%3Ard@db:5433/my%20shop?sslmode=require&connect_timeout=3");
        assert!(!format!("{other:?}").contains("w:rd"));
        let again = Target::parse(&other.url()).unwrap();
        assert_eq!((again.mode, again.place()), (Mode::Require, other.place()));
        assert_eq!(again.config.get_password(), Some(b"w:rd".as_slice()));
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
    fn what_others_may_listen_to_or_answer_is_not_protected() {
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
        assert!(matches!(error, Error::Silent { .. }), "{error}");
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
        // The second is asked though the first has ten minutes to answer.
        let second = tokio::time::timeout(Duration::from_secs(60), other.accept()).await;
        assert!(second.is_ok(), "the second host was not tried");
        assert!(!connecting.is_finished());
        connecting.abort();
    }
}
