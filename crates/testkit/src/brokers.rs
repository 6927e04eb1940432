//! Real brokers for tests: NATS, Redis and RabbitMQ, on a free loopback port and in a private folder. A test can stop,
//! kill, suspend and restart one on the same data.
//!
//! It configures a server, waits until it is ready, and reads its messages. It is independent of the sinks.
//!
//! # Layout
//!
//! - [`Broker`]: one running server
//! - `setup`: configuration files and environment variables
//! - `search`: finds the server programs
//! - `reader`: an independent consumer, to check what arrived

mod reader;
mod search;
mod setup;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::account::Account;
use super::folder::Folder;
use super::port::free_port;
use super::process::{self, Program};
pub use reader::{Hashes, ReadError};
pub use search::{FindError, find};

/// How long a server may take to be ready, or to end.
const DEADLINE: Duration = Duration::from_secs(120);
/// How many ports to try if another process takes one first.
const ATTEMPTS: u32 = 5;
/// The only user of the servers.
pub const USER: &str = "symphony";

/// The kind of broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NATS with JetStream.
    Nats,
    /// Redis with `appendfsync always`: it writes every command to disk before it replies.
    Redis,
    /// RabbitMQ, without plugins.
    RabbitMq,
}

/// How clients authenticate, and whether they use TLS.
#[derive(Clone)]
pub struct BrokerAuth {
    /// The password of [`USER`].
    pub password: String,
    /// A certificate and its key, as PEM: the server then accepts TLS connections only.
    pub tls: Option<(String, String)>,
}

/// Why a broker could not be started, stopped or restarted.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server program was not found. The message says how to install it.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The server did not start or end as expected.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// A system call failed.
    #[error("could not {what}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A running broker. Dropping it kills the server and removes its data.
pub struct Broker {
    kind: Kind,
    port: u16,
    password: String,
    server: Program,
    /// Erlang's name server, which RabbitMQ needs.
    _epmd: Option<Program>,
    config: setup::ServerConfig,
    _folder: Folder,
}

/// Without the password.
impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("kind", &self.kind).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Broker {
    /// Starts a broker and waits until it accepts connections.
    ///
    /// # Errors
    /// When the program is not found, or the server does not start.
    pub async fn start(kind: Kind, auth: &BrokerAuth) -> Result<Self, Error> {
        let program = find(kind)?;
        let account = Account::for_server().map_err(system("choose a user for the server"))?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let folder = Folder::create(account).map_err(system("create a folder for the server"))?;
            let port = free_port().map_err(system("find a free port"))?;
            let config = setup::ServerConfig::write(kind, &program, folder.path(), port, auth, account)
                .map_err(system("write the configuration"))?;
            let epmd = config.start_epmd()?;
            let server = config.launch().start()?;
            match ready(kind, &server).await {
                Ok(()) => {
                    let password = auth.password.clone();
                    return Ok(Self { kind, port, password, server, _epmd: epmd, config, _folder: folder });
                }
                Err(error) => {
                    let output = server.tail().to_lowercase();
                    let taken = output.contains("in use") || output.contains("eaddrinuse");
                    if !taken || attempts >= ATTEMPTS {
                        return Err(error);
                    }
                }
            }
        }
    }

    /// The port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The number of the server's process.
    pub fn id(&self) -> i32 {
        self.server.id()
    }

    /// Suspends the server with SIGSTOP: connections stay open, and it does not reply.
    pub fn pause(&self) {
        self.server.suspend();
    }

    /// Resumes the server after a pause.
    pub fn resume(&self) {
        self.server.resume();
    }

    /// Stops the server with SIGTERM, and waits until it has ended.
    ///
    /// # Errors
    /// When it does not end in time.
    pub async fn stop(&self) -> Result<(), Error> {
        self.server.term();
        self.server.exit(DEADLINE).await?;
        Ok(())
    }

    /// Kills the server with SIGKILL.
    ///
    /// # Errors
    /// When the process does not end in time.
    pub async fn kill9(&self) -> Result<(), Error> {
        Ok(self.server.kill9().await?)
    }

    /// Restarts the server on the same port and data, and waits until it accepts connections.
    ///
    /// # Errors
    /// When the server does not start.
    pub async fn restart(&mut self) -> Result<(), Error> {
        if self.server.is_running() {
            self.server.kill9().await?;
        }
        self.server = self.config.launch().start()?;
        ready(self.kind, &self.server).await
    }
}

async fn ready(kind: Kind, server: &Program) -> Result<(), Error> {
    let message = match kind {
        Kind::Nats => "Server is ready",
        Kind::Redis => "Ready to accept connections",
        Kind::RabbitMq => "Server startup complete",
    };
    server.wait_for_line(|line| line.contains(message), DEADLINE).await?;
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str, account: Account) -> io::Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    account.chown(&path)?;
    Ok(path)
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

#[cfg(test)]
mod tests;
