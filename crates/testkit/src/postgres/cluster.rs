//! One server with its data, from start to removal.

mod copy;
mod standby;
mod upgrade;

pub use standby::{Replication, Standby};

use std::fs::{self, File};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use tokio_postgres::{Client, NoTls};

use super::binaries::Binaries;
use super::sessions;
use crate::account::Account;
use crate::folder::Folder;
use crate::port::{HOST, free_port};
use crate::process::child::{self, Process};

const SUPERUSER: &str = "postgres";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// How long a server may take to stop at once before it is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of the log an error shows.
const TAIL_LINES: usize = 20;

/// What kind of server to start.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether what was committed survives a crash of the machine. Costs most of the speed; `false` unless told.
    pub durable: bool,
    /// Further settings of the server, as in postgresql.conf. They win over ours.
    pub settings: Vec<(String, String)>,
    /// How long the server may take to accept connections, or to stop. A minute unless told.
    pub deadline: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { durable: false, settings: Vec::new(), deadline: Duration::from_secs(60) }
    }
}

/// Why a server could not be started, stopped or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused something. It says what.
    #[error("could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// `initdb` failed. Its words say why.
    #[error("initdb failed ({status}):\n{output}")]
    Initdb {
        /// How it ended.
        status: ExitStatus,
        /// What it printed.
        output: String,
    },
    /// A program that prepares or moves data failed. Its words say why.
    #[error("{program} failed ({status}):\n{output}")]
    Program {
        /// Which one.
        program: String,
        /// How it ended.
        status: ExitStatus,
        /// What it printed.
        output: String,
    },
    /// The server ended instead of accepting connections. Its log says why.
    #[error("the server ended while it started ({status}); the end of its log:\n{log}")]
    Ended {
        /// How it ended.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The server refused a statement. It says why.
    #[error("could not {what}")]
    Refused {
        /// What was tried.
        what: &'static str,
        /// The error of the server.
        source: tokio_postgres::Error,
    },
    /// The server cannot be copied or followed as it is. Start it otherwise.
    #[error("there can be no such standby: {why}")]
    Standby {
        /// What stands in the way.
        why: &'static str,
    },
    /// The server did not do it in time. Its log may say why; a slow machine needs a later deadline.
    #[error("the server did not {what} within {limit:?}; the end of its log:\n{log}")]
    Deadline {
        /// What was waited for.
        what: &'static str,
        /// How long.
        limit: Duration,
        /// The end of its log.
        log: String,
    },
}

/// A running, stopped or crashed server and its data. Dropping it stops the server at once and removes the data.
#[derive(Debug)]
pub struct Cluster {
    binaries: Binaries,
    options: Options,
    account: Account,
    port: u16,
    // Before the folder: fields are dropped in this order, and the server must be gone before its data.
    server: Server,
    folder: Folder,
}

/// The process, which does not outlive this value.
#[derive(Debug, Default)]
struct Server(Option<Process>);

impl Cluster {
    /// Makes a new data folder, starts a server on it, and returns when it accepts connections.
    pub async fn start(binaries: &Binaries, options: Options) -> Result<Self, Error> {
        let account = Account::for_server().map_err(system("find a user for the server"))?;
        let folder = Folder::create(account).map_err(system("make a temporary folder"))?;
        let mut cluster = Self {
            binaries: binaries.clone(),
            options,
            account,
            port: free_port().map_err(system("find a free port"))?,
            server: Server(None),
            folder,
        };
        cluster.initdb().await?;
        cluster.serve(Port::AnyFree).await?;
        Ok(cluster)
    }

    /// How to reach a database of this server as its superuser. The name must be a plain identifier.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@{HOST}:{}/{database}", self.port)
    }

    /// The port on the loopback address. It stays the same over a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The programs that it runs.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The folder that holds the data, the log and the socket.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The server's log.
    pub fn log(&self) -> PathBuf {
        self.folder.log()
    }

    /// Whether the server runs.
    pub fn is_running(&self) -> bool {
        self.server.0.as_ref().is_some_and(|process| process.ended().is_none())
    }

    /// Stops the server in good order: open transactions are rolled back, everything is written. The data stays.
    pub async fn stop(&mut self) -> Result<(), Error> {
        let limit = self.options.deadline;
        if let Some(process) = &self.server.0 {
            process.signal(Signal::INT);
            if !process.ends(limit).await {
                return Err(self.too_late("stop"));
            }
        }
        Ok(())
    }

    /// Ends the server and all its processes with SIGKILL, in the middle of whatever they do. The data stays.
    ///
    /// Less than a loss of power: what was handed to the operating system is still written.
    pub async fn kill9(&mut self) {
        if let Some(process) = &self.server.0 {
            process.kill_all().await;
        }
    }

    /// Starts the server again on the same data and the same port; stops it before if it still runs.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        self.serve(Port::Same).await
    }

    /// Ends every session in a database, as an administrator does with `pg_terminate_backend`, and says how many there
    /// were. Their clients see a lost connection; new ones are let in.
    pub async fn terminate_sessions(&self, database: &str) -> Result<u64, Error> {
        let refused = refused("end the sessions");
        sessions::terminate(&self.session("postgres").await?, database).await.map_err(refused)
    }

    /// Stops the server at once and removes its folder. Dropping does the same and cannot say when it fails.
    pub fn remove(self) -> Result<(), Error> {
        let Self { server, folder, .. } = self;
        drop(server);
        folder.remove().map_err(system("remove the temporary folder"))
    }

    /// A session of the superuser.
    async fn session(&self, database: &str) -> Result<Client, Error> {
        let (client, connection) =
            tokio_postgres::connect(&self.url(database), NoTls).await.map_err(refused("connect"))?;
        tokio::spawn(connection);
        Ok(client)
    }

    fn too_late(&self, what: &'static str) -> Error {
        Error::Deadline { what, limit: self.options.deadline, log: tail(&self.folder.log(), 0) }
    }

    async fn initdb(&self) -> Result<(), Error> {
        let mut command = Command::new(self.binaries.program("initdb"));
        command
            .args(["--auth=trust", "--no-instructions", "--encoding=UTF8", "--locale=C"])
            .args(["--username", SUPERUSER])
            .arg("--pgdata")
            .arg(self.folder.data());
        if !self.options.durable {
            command.arg("--no-sync");
        }
        self.prepare(&mut command);
        let mut command = tokio::process::Command::from(command);
        let output = command.kill_on_drop(true).output().await.map_err(system("run initdb"))?;
        if output.status.success() {
            return Ok(());
        }
        let words = [output.stdout, output.stderr].concat();
        Err(Error::Initdb { status: output.status, output: String::from_utf8_lossy(&words).into_owned() })
    }

    /// Starts the process until it stays, and returns when it accepts connections.
    async fn serve(&mut self, port: Port) -> Result<(), Error> {
        let deadline = Instant::now() + self.options.deadline;
        let data = self.folder.data();
        loop {
            let log_start = fs::metadata(self.folder.log()).map_or(0, |metadata| metadata.len());
            let process = Process::spawn(self.command()?).map_err(system("start the server"))?;
            let process = self.server.0.insert(process);
            let log = || tail(&self.folder.log(), log_start);
            let status = loop {
                if let Some(status) = process.ended() {
                    break status;
                }
                let left = deadline.saturating_duration_since(Instant::now());
                let answered = tokio::select! {
                    answered = answers(self.port, &data) => answered,
                    // Another process on that port may not answer.
                    _ = process.ends(left) => false,
                };
                if answered {
                    return Ok(());
                }
                if Instant::now() >= deadline {
                    let limit = self.options.deadline;
                    return Err(Error::Deadline { what: "accept connections", limit, log: log() });
                }
                tokio::time::sleep(POLL_INTERVAL).await;
            };
            let log = log();
            let lost_the_port =
                log.contains("could not bind") || log.contains("could not create any TCP/IP sockets");
            // The last processes of a crashed server may still be going.
            let too_early = log.contains("shared memory block") || log.contains("lock file \"postmaster.pid\"");
            if !(lost_the_port || too_early) || Instant::now() >= deadline {
                return Err(Error::Ended { status, log });
            }
            match port {
                Port::AnyFree => self.port = free_port().map_err(system("find a free port"))?,
                Port::Same => tokio::time::sleep(POLL_INTERVAL).await,
            }
        }
    }

    fn command(&self) -> Result<Command, Error> {
        let log = File::options().create(true).append(true).open(self.folder.log());
        let log = log.map_err(system("open the server's log"))?;
        let mut command = child::tied_to_us(&self.binaries.program("postgres"), "QUIT");
        command.arg("-D").arg(self.folder.data());
        for (name, value) in self.settings() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        self.prepare(&mut command);
        // A group of its own: Ctrl-C is for the process that uses the server, which then stops it.
        command.stdout(Stdio::null()).stderr(log).process_group(0);
        Ok(command)
    }

    fn settings(&self) -> Vec<(String, String)> {
        let folder = self.folder.path().display().to_string();
        let durable = if self.options.durable { "on" } else { "off" };
        let ours = [
            ("listen_addresses", HOST.to_string()),
            ("port", self.port.to_string()),
            ("unix_socket_directories", folder),
            ("max_connections", "200".into()),
            ("shared_buffers", "256MB".into()),
            ("logging_collector", "off".into()),
            ("fsync", durable.into()),
            ("synchronous_commit", durable.into()),
            ("full_page_writes", durable.into()),
        ];
        let ours = ours.map(|(name, value)| (name.to_owned(), value));
        ours.into_iter().chain(self.options.settings.iter().cloned()).collect()
    }

    /// Makes a command run as the server's user, away from the caller's folder, input and PostgreSQL settings.
    fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            // PGDATA, PGPORT, PGOPTIONS and the like are about another server.
            if name.to_str().is_some_and(|name| name.starts_with("PG")) {
                command.env_remove(name);
            }
        }
        command.current_dir(self.folder.path()).stdin(Stdio::null());
        self.account.apply(command);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let Some(process) = &self.0 else { return };
        process.signal(Signal::QUIT);
        if !process.wait(STOP_TIMEOUT) {
            process.signal(Signal::KILL);
            process.wait(STOP_TIMEOUT);
        }
    }
}

/// What to do when the port was taken between our look and the server's.
#[derive(Clone, Copy)]
enum Port {
    /// No client knows the port yet: take another.
    AnyFree,
    /// Clients know it: wait for it.
    Same,
}

/// Whether our server, and not another that was faster to the port, accepts connections.
async fn answers(port: u16, data: &Path) -> bool {
    let asked = async {
        let mut config = tokio_postgres::Config::new();
        config.host(HOST.to_string()).port(port).user(SUPERUSER).dbname("postgres");
        let (client, connection) = config.connect(NoTls).await?;
        let connection = tokio::spawn(connection);
        let row = client.query_one("select current_setting('data_directory')", &[]).await;
        drop(client);
        // Ended on both sides before we go on: a database with open connections cannot be a template.
        let _ = connection.await;
        row?.try_get::<_, String>(0)
    };
    asked.await.is_ok_and(|folder| Path::new(&folder) == data)
}

/// The last lines of the log after a position.
fn tail(log: &Path, from: u64) -> String {
    let bytes = fs::read(log).unwrap_or_default();
    let since = usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or(&bytes);
    let text = String::from_utf8_lossy(since);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(TAIL_LINES)..].join("\n")
}

fn refused(what: &'static str) -> impl FnOnce(tokio_postgres::Error) -> Error {
    move |source| Error::Refused { what, source }
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

#[cfg(test)]
mod tests;
