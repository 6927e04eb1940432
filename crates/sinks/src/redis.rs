//! A Redis server: where it is, a connection to it, and what its errors mean whatever was asked.
//!
//! It does not know which keys are written. Events and metadata each have a script of their own, which the server runs as
//! a whole or not at all as far as others can see.

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

use crate::broker::{Common, Endpoint, Login, Schemes};
use crate::config::Problem;
use crate::courier::{Outcome, Sent, told};

const SCHEMES: Schemes = Schemes { tls: ("rediss", 6379), plain: ("redis", 6379) };

/// The largest load by default.
pub(crate) const LARGEST: usize = 1024 * 1024;

/// A server, and how many replicas of it must have what it confirms.
pub(crate) struct Server {
    endpoint: Endpoint,
    /// The name in the server's certificate, with TLS.
    tls: Option<(TlsConnector, ServerName<'static>)>,
    database: i64,
    login: Option<Login>,
    replicas: u32,
    timeout: Duration,
}

impl Server {
    pub(crate) fn new(url: &str, replicas: u32, common: &Common) -> Result<Self, Problem> {
        let endpoint = Endpoint::parse(url, &SCHEMES, common.allow_plain)?;
        let database = match endpoint.path.as_str() {
            "" => 0,
            path => path.parse::<u16>().map(i64::from).map_err(|error| {
                Problem::new("url", "must end with the number of a database, or with the port").because(error)
            })?,
        };
        if replicas > 100 {
            return Err(Problem::new("replicas", "must be from 0 to 100"));
        }
        let config = common.tls(endpoint.tls)?;
        let tls = if endpoint.tls {
            let name = ServerName::try_from(endpoint.host.clone()).map_err(|error| {
                Problem::new("url", "must name a host that a certificate can name").because(error)
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
        let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| told(&error))?;
        stream.set_nodelay(true).map_err(|error| told(&error))?;
        let info = self.info();
        // The courier keeps the time.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let made = match &self.tls {
            Some((tls, name)) => {
                let stream = tls.connect(name.clone(), stream).await.map_err(|error| told(&error))?;
                MultiplexedConnection::new_with_config(&info, stream, config)
                    .await
                    .map(|(commands, driver)| (commands, tokio::spawn(driver)))
            }
            None => MultiplexedConnection::new_with_config(&info, stream, config)
                .await
                .map(|(commands, driver)| (commands, tokio::spawn(driver))),
        };
        let (commands, driver) = made.map_err(|error| connecting(&error))?;
        Ok(Connection { commands, driver })
    }

    /// Runs one command, with what waits for replicas behind it: the number that the command answers.
    ///
    /// # Errors
    ///
    /// What the server said to the command, or that too few replicas have it.
    pub(crate) async fn run(&self, connection: &Connection, command: redis::Cmd) -> Result<u32, Trouble> {
        let mut pipeline = Pipeline::new();
        // The first error is the one that counts, and has a code of its own.
        pipeline.ignore_errors();
        pipeline.add_command(command);
        if self.replicas > 0 {
            // A little less than we wait ourselves: what comes too late is then the server's own word.
            let wait = self.timeout * 9 / 10;
            pipeline.cmd("WAIT").arg(self.replicas).arg(u64::try_from(wait.as_millis()).unwrap_or(u64::MAX));
        }
        let mut commands = connection.commands.clone();
        let answers: Result<Vec<RedisResult<u32>>, RedisError> = pipeline.query_async(&mut commands).await;
        let answers = answers.and_then(|answers| answers.into_iter().collect::<RedisResult<Vec<u32>>>());
        match answers.as_deref() {
            Ok([_, copies]) if *copies < self.replicas => {
                Err(Trouble::Replicas { copies: *copies, wanted: self.replicas })
            }
            Ok([answer, ..]) => Ok(*answer),
            Ok([]) => Err(Trouble::Silent),
            Err(_) => answers.map(|_| 0).map_err(Trouble::Said),
        }
    }
}

/// A connection, and the task that reads and writes for it.
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

/// Why a command did not do what it should.
pub(crate) enum Trouble {
    /// Fewer replicas have confirmed it than the settings say.
    Replicas { copies: u32, wanted: u32 },
    /// No answer where one was due.
    Silent,
    /// What the server or the client said.
    Said(RedisError),
}

impl Trouble {
    /// The code by which the server names its error.
    pub(crate) fn code(&self) -> Option<&str> {
        match self {
            Self::Said(error) => error.code(),
            Self::Replicas { .. } | Self::Silent => None,
        }
    }

    /// What it means, whatever was asked.
    pub(crate) fn meaning<O: Outcome>(&self) -> Sent<O> {
        let error = match self {
            Self::Replicas { copies, wanted } => {
                return Sent::failed(format!(
                    "{copies} of {wanted} replicas have confirmed it in time (replicas)"
                ));
            }
            Self::Silent => return Sent::Broken("the server answered nothing".to_owned()),
            Self::Said(error) => error,
        };
        match (error.kind(), error.code()) {
            (_, Some("NOAUTH")) => {
                Sent::Broken("the server asks for credentials: set password_env or password_file".to_owned())
            }
            // After a failover the old primary is still there and takes no writes: look again.
            (ErrorKind::Server(ServerErrorKind::ReadOnly), _) => {
                Sent::Broken("the server is a replica by now".to_owned())
            }
            (ErrorKind::Server(_) | ErrorKind::Extension, code) => Sent::failed(format!(
                "the server could not take it: {}",
                code.unwrap_or("an error without a code")
            )),
            _ => Sent::Broken(told(error)),
        }
    }
}

/// What keeps a connection from being made.
pub(crate) fn connecting(error: &RedisError) -> String {
    let refused = matches!(error.code(), Some("NOAUTH" | "WRONGPASS" | "NOPERM"));
    if refused || error.kind() == ErrorKind::AuthenticationFailed {
        "the server does not accept our credentials".to_owned()
    } else {
        told(error)
    }
}
