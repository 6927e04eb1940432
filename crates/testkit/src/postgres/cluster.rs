//! One server with its data: start, stop, crash, restart and removal.

mod copy;
mod recovery;
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
/// How long an immediate shutdown may take before the server is killed.
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
/// How many log lines an error shows.
const TAIL_LINES: usize = 20;

/// Options of a server.
#[derive(Clone, Debug)]
pub struct Options {
    /// Whether committed data survives a crash of the machine (fsync). Slow; the default is `false`.
    pub durable: bool,
    /// Further settings, as in postgresql.conf. They override ours.
    pub settings: Vec<(String, String)>,
    /// How long the server may take to accept connections, or to stop. The default is one minute.
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
    /// A system call failed.
    #[error("could not {what}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// `initdb` failed. Its output says why.
    #[error("initdb failed ({status}):\n{output}")]
    Initdb {
        /// Its exit status.
        status: ExitStatus,
        /// Its output.
        output: String,
    },
    /// A program that prepares or moves data failed. Its output says why.
    #[error("{program} failed ({status}):\n{output}")]
    Program {
        /// The program.
        program: String,
        /// Its exit status.
        status: ExitStatus,
        /// Its output.
        output: String,
    },
    /// The server exited during startup. Its log says why.
    #[error("the server exited during startup ({status}); the end of its log:\n{log}")]
    Ended {
        /// Its exit status.
        status: ExitStatus,
        /// The end of its log.
        log: String,
    },
    /// The server refused a statement.
    #[error("could not {what}")]
    Refused {
        /// The operation.
        what: &'static str,
        /// The error of the server.
        source: tokio_postgres::Error,
    },
    /// The server cannot have this standby.
    #[error("cannot create this standby: {why}")]
    Standby {
        /// The reason.
        why: &'static str,
    },
    /// The server missed its deadline. Its log may say why; a slow machine needs a longer one.
    #[error("the server did not {what} within {limit:?}; the end of its log:\n{log}")]
    Deadline {
        /// The expected event.
        what: &'static str,
        /// The deadline.
        limit: Duration,
        /// The end of its log.
        log: String,
    },
}

/// A running, stopped or crashed server and its data. Dropping it stops the server immediately and removes the data.
#[derive(Debug)]
pub struct Cluster {
    binaries: Binaries,
    options: Options,
    account: Account,
    port: u16,
    // Declared before the folder: fields are dropped in this order, and the server must end before its data is removed.
    server: Server,
    folder: Folder,
}

/// The server process, which is ended on drop.
#[derive(Debug, Default)]
struct Server(Option<Process>);

impl Cluster {
    /// Runs `initdb`, starts the server, and waits until it accepts connections.
    pub async fn start(binaries: &Binaries, options: Options) -> Result<Self, Error> {
        let account = Account::for_server().map_err(system("find a user for the server"))?;
        let folder = Folder::create(account).map_err(system("create a temporary folder"))?;
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

    /// The URL of a database of this server, as its superuser. The name must be a plain identifier.
    pub fn url(&self, database: &str) -> String {
        format!("postgres://{SUPERUSER}@{HOST}:{}/{database}", self.port)
    }

    /// The port on the loopback address. It stays the same across a restart.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The PostgreSQL installation of this server.
    pub fn binaries(&self) -> &Binaries {
        &self.binaries
    }

    /// The folder of the data, the log and the socket.
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

    /// Shuts the server down (fast mode): it rolls back open transactions and writes a checkpoint. The data stays.
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

    /// Kills the server and all its processes with SIGKILL. The data stays.
    ///
    /// This is less than a power failure: the operating system still writes its cached pages.
    pub async fn kill9(&mut self) {
        if let Some(process) = &self.server.0 {
            process.kill_all().await;
        }
    }

    /// Restarts the server on the same data and port. Stops it first if it still runs.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        self.serve(Port::Same).await
    }

    /// Terminates every session of a database with `pg_terminate_backend`, and returns how many there were. Their
    /// clients lose the connection; new connections are accepted.
    pub async fn terminate_sessions(&self, database: &str) -> Result<u64, Error> {
        let refused = refused("end the sessions");
        sessions::terminate(&self.session("postgres").await?, database).await.map_err(refused)
    }

    /// Stops the server immediately and removes its folder. Dropping does the same but cannot report an error.
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

    /// Starts the process, again if it loses its port, and waits until it accepts connections.
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
                let replied = tokio::select! {
                    replied = replies(self.port, &data) => replied,
                    // Another process on that port may never reply.
                    _ = process.ends(left) => false,
                };
                if replied {
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
            // The last processes of a crashed server may still be exiting.
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
        let mut command = child::command_with_parent_death_signal(&self.binaries.program("postgres"), "QUIT");
        command.arg("-D").arg(self.folder.data());
        for (name, value) in self.settings() {
            command.arg("-c").arg(format!("{name}={value}"));
        }
        self.prepare(&mut command);
        // Its own process group: Ctrl-C must reach only the process that uses the server, which then stops it.
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

    /// Makes a command run as the server's user, without the caller's working directory, stdin and PG* variables.
    fn prepare(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            // PGDATA, PGPORT, PGOPTIONS and the like refer to another server.
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

/// What to do if another process takes the port before the server binds it.
#[derive(Clone, Copy)]
enum Port {
    /// No client uses the port yet: choose another.
    AnyFree,
    /// Clients use it: wait until it is free.
    Same,
}

/// Whether our server accepts connections, and not another one that took the port first.
async fn replies(port: u16, data: &Path) -> bool {
    let data_directory = async {
        let mut config = tokio_postgres::Config::new();
        config.host(HOST.to_string()).port(port).user(SUPERUSER).dbname("postgres");
        let (client, connection) = config.connect(NoTls).await?;
        let connection = tokio::spawn(connection);
        let row = client.query_one("select current_setting('data_directory')", &[]).await;
        drop(client);
        // Wait until the connection is closed: a database with open connections cannot be a template.
        let _ = connection.await;
        row?.try_get::<_, String>(0)
    };
    data_directory.await.is_ok_and(|folder| Path::new(&folder) == data)
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
