//! Real brokers on free ports of the loopback address, each in a private folder: started, stopped, killed, paused and
//! started again on the same data.
//!
//! It knows how to set a server up, when it is ready and how to read what it holds. It does not know the sinks.
//!
//! # Layout
//!
//! - [`Broker`]: one server, from start to end
//! - `setup`: how each is told what to do
//! - `search`: which programs to run
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
/// How often another port is tried when another process took the first.
const ATTEMPTS: u32 = 5;
/// The only user that the servers know.
pub const USER: &str = "symphony";

/// Which broker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// NATS with JetStream.
    Nats,
    /// Redis, which writes every command to disk before it answers.
    Redis,
    /// RabbitMQ, without plugins.
    RabbitMq,
}

/// What a server asks of its clients.
#[derive(Clone)]
pub struct Terms {
    /// The password of [`USER`].
    pub password: String,
    /// A certificate and its key, as PEM: the server then speaks TLS and nothing else.
    pub tls: Option<(String, String)>,
}

/// Why there is no broker.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no program to run. The text says how to get it.
    #[error(transparent)]
    Find(#[from] FindError),
    /// It did not start or end as it should.
    #[error(transparent)]
    Process(#[from] process::Error),
    /// The system refused.
    #[error("could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
}

/// A broker that was started. It is gone with its data when this is dropped.
pub struct Broker {
    kind: Kind,
    port: u16,
    password: String,
    server: Program,
    /// Servers that it needs beside it.
    _beside: Option<Program>,
    plan: setup::Plan,
    _folder: Folder,
}

/// Without the password.
impl fmt::Debug for Broker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Broker").field("kind", &self.kind).field("port", &self.port).finish_non_exhaustive()
    }
}

impl Broker {
    /// Starts a broker and waits until it takes connections.
    ///
    /// # Errors
    /// When there is none to run, or it does not come up.
    pub async fn start(kind: Kind, terms: &Terms) -> Result<Self, Error> {
        let program = find(kind)?;
        let account = Account::for_server().map_err(system("choose a user for the server"))?;
        let mut attempts = 0;
        loop {
            attempts += 1;
            let folder = Folder::create(account).map_err(system("make a folder for the server"))?;
            let port = free_port().map_err(system("find a free port"))?;
            let plan = setup::Plan::write(kind, &program, folder.path(), port, terms, account)
                .map_err(system("write the configuration"))?;
            let beside = plan.beside()?;
            let server = plan.launch().start()?;
            match ready(kind, &server).await {
                Ok(()) => {
                    let password = terms.password.clone();
                    return Ok(Self { kind, port, password, server, _beside: beside, plan, _folder: folder });
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

    /// Stops it with SIGSTOP: connections stay open, and the server does not answer.
    pub fn pause(&self) {
        self.server.stop();
    }

    /// Lets it go on after a pause.
    pub fn resume(&self) {
        self.server.cont();
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// When it does not end.
    pub async fn stop(&self) -> Result<(), Error> {
        self.server.term();
        self.server.exit(DEADLINE).await?;
        Ok(())
    }

    /// Kills it in the middle of whatever it does.
    ///
    /// # Errors
    /// When it does not go, which only the system can cause.
    pub async fn kill9(&self) -> Result<(), Error> {
        Ok(self.server.kill9().await?)
    }

    /// Starts it again where it was, on the data that it had, and waits until it takes connections.
    ///
    /// # Errors
    /// When it does not come up.
    pub async fn restart(&mut self) -> Result<(), Error> {
        if self.server.is_running() {
            self.server.kill9().await?;
        }
        self.server = self.plan.launch().start()?;
        ready(self.kind, &self.server).await
    }
}

async fn ready(kind: Kind, server: &Program) -> Result<(), Error> {
    let stderr = match kind {
        Kind::Nats => "Server is ready",
        Kind::Redis => "Ready to accept connections",
        Kind::RabbitMq => "Server startup complete",
    };
    server.wait_for_line(|line| line.contains(stderr), DEADLINE).await?;
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str, account: Account) -> io::Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, text)?;
    account.take(&path)?;
    Ok(path)
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

#[cfg(test)]
mod tests;
