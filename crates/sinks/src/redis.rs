//! Connects to a Redis server, runs one command with `WAIT` for replicas, and classifies the errors of any command.
//!
//! It does not know which keys are written. The sink for events and the store for metadata each bring a Lua script,
//! which the server runs atomically.

use std::sync::Arc;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{
    AsyncConnectionConfig, ErrorKind, Pipeline, RedisConnectionInfo, RedisError, RedisResult, ServerErrorKind,
};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

use crate::broker::{BrokerSettings, Endpoint, Login, Schemes};
use crate::config::SettingError;
use crate::connection_manager::{DeliveryOutcome, SendResult};
use crate::error_text::error_chain;

const SCHEMES: Schemes = Schemes { tls: ("rediss", 6379), plain: ("redis", 6379) };

/// The default of the setting `max_bytes`.
pub(crate) const DEFAULT_MAX_BYTES: usize = 1024 * 1024;

/// A server, and how many of its replicas must have a write before it counts as confirmed.
pub(crate) struct Server {
    endpoint: Endpoint,
    /// With TLS: the connector, and the name that the server's certificate must have.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    database: i64,
    login: Option<Login>,
    replicas: u32,
    timeout: Duration,
}

impl Server {
    pub(crate) fn new(url: &str, replicas: u32, common: &BrokerSettings) -> Result<Self, SettingError> {
        let endpoint = Endpoint::parse(url, &SCHEMES, common.allow_plain)?;
        let database = match endpoint.path.as_str() {
            "" => 0,
            path => path.parse::<u16>().map(i64::from).map_err(|error| {
                SettingError::new("url", "must end with the number of a database, or with the port")
                    .with_source(error)
            })?,
        };
        if replicas > 100 {
            return Err(SettingError::new("replicas", "must be from 0 to 100"));
        }
        let config = common.tls(endpoint.tls)?;
        let tls = if endpoint.tls {
            let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| {
                SettingError::new("url", "must name a host that a certificate can name").with_source(error)
            })?;
            Some((TlsConnector::from(Arc::new(config)), name))
        } else {
            None
        };
        let (login, timeout) = (common.login(false)?, common.timeout);
        Ok(Self { endpoint, tls, database, login, replicas, timeout })
    }

    fn info(&self) -> RedisConnectionInfo {
        let mut info = RedisConnectionInfo::default().set_db(self.database).set_skip_set_lib_name();
        if let Some(Login { user, password }) = &self.login {
            info = info.set_password(password.expose());
            if let Some(user) = user {
                info = info.set_username(user);
            }
        }
        info
    }

    pub(crate) async fn connect(&self) -> Result<Connection, String> {
        let Endpoint { host, port, .. } = &self.endpoint;
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| error_chain(&error))?;
        stream.set_nodelay(true).map_err(|error| error_chain(&error))?;
        let info = self.info();
        // The connection manager applies the timeout.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let made = match &self.tls {
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), stream).await.map_err(|error| error_chain(&error))?;
                MultiplexedConnection::new_with_config(&info, stream, config)
                    .await
                    .map(|(commands, driver)| (commands, tokio::spawn(driver)))
            }
            None => MultiplexedConnection::new_with_config(&info, stream, config)
                .await
                .map(|(commands, driver)| (commands, tokio::spawn(driver))),
        };
        let (commands, driver) = made.map_err(|error| connect_error(&error))?;
        Ok(Connection { commands, driver })
    }

    /// Runs one command, and then WAIT if replicas must have it. Returns the number that the command answers.
    ///
    /// # Errors
    ///
    /// The server's error, or that too few replicas have the write.
    pub(crate) async fn run(&self, connection: &Connection, command: redis::Cmd) -> Result<u32, CommandError> {
        let mut pipeline = Pipeline::new();
        // Keeps the error of the command itself, with its code.
        pipeline.ignore_errors();
        pipeline.add_command(command);
        if self.replicas > 0 {
            // Shorter than `timeout`: the server then answers how many replicas have it.
            let wait = self.timeout * 9 / 10;
            pipeline.cmd("WAIT").arg(self.replicas).arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        let mut commands = connection.commands.clone();
        let replies: Result<Vec<RedisResult<u32>>, RedisError> = pipeline.query_async(&mut commands).await;
        let replies = replies.and_then(|replies| replies.into_iter().collect::<RedisResult<Vec<u32>>>());
        match replies.as_deref() {
            Ok([_, confirmed]) if *confirmed < self.replicas => {
                Err(CommandError::TooFewReplicas { confirmed: *confirmed, required: self.replicas })
            }
            Ok([reply, ..]) => Ok(*reply),
            Ok([]) => Err(CommandError::NoReply),
            Err(_) => replies.map(|_| 0).map_err(CommandError::Redis),
        }
    }
}

/// A connection, and the task that drives it.
pub(crate) struct Connection {
    pub(crate) commands: MultiplexedConnection,
    driver: JoinHandle<()>,
}

impl Connection {
    pub(crate) fn is_open(&self) -> bool {
        !self.driver.is_finished()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Why a command failed.
pub(crate) enum CommandError {
    /// Fewer replicas have confirmed the write than the setting `replicas` requires.
    TooFewReplicas { confirmed: u32, required: u32 },
    /// The server sent fewer replies than commands.
    NoReply,
    /// The error of the server or of the client.
    Redis(RedisError),
}

impl CommandError {
    /// The server's error code, such as `NOPERM`.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Redis(error) => error.code(),
            Self::TooFewReplicas { .. } | Self::NoReply => None,
        }
    }

    /// Maps an error that any command may meet to the result of the send.
    pub(crate) fn classify<O: DeliveryOutcome>(&self) -> SendResult<O> {
        let error = match self {
            Self::TooFewReplicas { confirmed, required } => {
                return SendResult::failed(format!(
                    "{confirmed} of {required} replicas have confirmed it in time (replicas)"
                ));
            }
            Self::NoReply => return SendResult::ConnectionLost("the server sent no reply".to_owned()),
            Self::Redis(error) => error,
        };
        match (error.kind(), error.code()) {
            (_, Some("NOAUTH")) => SendResult::ConnectionLost(
                "the server requires credentials: set password_env or password_file".to_owned(),
            ),
            // After a failover the old primary still answers and refuses writes: a new connection finds the new
            // primary.
            (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => {
                SendResult::ConnectionLost("the server is now a replica".to_owned())
            }
            (ErrorKind::Server(_) | ErrorKind::Extension, code) => SendResult::failed(format!(
                "the server could not store it: {}",
                code.unwrap_or("an error without a code")
            )),
            _ => SendResult::ConnectionLost(error_chain(error)),
        }
    }
}

/// The text for an operator if a connection cannot be made.
pub(crate) fn connect_error(error: &RedisError) -> String {
    let refused = matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    if refused || error.kind() == ErrorKind::AuthenticationFailed {
        "the server refuses the credentials: check user and password".to_owned()
    } else {
        error_chain(error)
    }
}
