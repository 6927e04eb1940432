//! PgBouncer in transaction mode in front of a server: many client connections share few server connections, and hold
//! none between transactions.
//!
//! It trusts every login of the server on the loopback address, as the test servers do. Session state does not survive
//! a transaction, and neither do prepared statements: PgBouncer 1.18 cannot track them, and Symphony supports 1.18.
//!
//! # Layout
//!
//! - [`Pooler`]: one running PgBouncer
//! - `search`: finds the program

mod search;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::account::Account;
pub use super::address::InvalidDatabaseUrl;
use super::address::{Address, rewrite_url};
use super::folder::Folder;
use super::port::{HOST, free_port};
use super::process::{self, Launch, Program};
use super::wait;
pub use search::{FindError, Found, find};

/// The login that looks up users on the server and reads the pooler's admin console.
const SUPERUSER: &str = "postgres";
/// The first version that can track prepared statements.
const TRACKS_STATEMENTS: (u32, u32) = (1, 21);
/// How long it may take to accept connections.
const DEADLINE: Duration = Duration::from_secs(60);
/// How many ports to try if another process takes one first.
const ATTEMPTS: usize = 20;

/// Why a pooler could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// PgBouncer was not found.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The server's URL does not have exactly one host and port.
    #[error(transparent)]
    Address(#[from] InvalidDatabaseUrl),
    /// A system call failed.
    #[error("could not {what}")]
    System {
        /// The operation.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// PgBouncer did not start, or ended. Its output says why.
    #[error(transparent)]
    Program(#[from] process::Error),
    /// PgBouncer runs and does not reply. Its output may say why.
    #[error("PgBouncer did not reply within {DEADLINE:?}; the end of its output:\n{output}")]
    NoReply {
        /// The end of its output.
        output: String,
    },
}

/// A running PgBouncer in transaction mode. Dropping it kills the process.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    // Declared before the folder, so that it is dropped before its configuration.
    program: Program,
    _folder: Folder,
}

impl Pooler {
    /// Starts a pooler in front of the server of this URL, and waits until it replies. `sessions` is its limit of
    /// server connections for each user and database. The server need not run, but must trust this machine.
    ///
    /// # Errors
    /// When PgBouncer is not found or does not start, or the URL does not have one host and port.
    pub async fn in_front_of(url: &str, sessions: u32) -> Result<Self, Error> {
        let server = Address::of(url)?;
        let Found { program, version } = find()?;
        let account = Account::for_server().map_err(system("find a user for PgBouncer"))?;
        let folder = Folder::create(account).map_err(system("create a temporary folder"))?;
        let users = folder.path().join("users.txt");
        write(&users, &format!("\"{SUPERUSER}\" \"\"\n"), account)?;
        let configuration = folder.path().join("pgbouncer.ini");
        let mut attempts = 0;
        loop {
            attempts += 1;
            let port = free_port().map_err(system("find a free port"))?;
            write(&configuration, &settings(&server, port, sessions, &users, version), account)?;
            let launch = Launch::new(&program).args([&configuration]).current_dir(folder.path()).account(account);
            let program = launch.start()?;
            // PgBouncer exits if it cannot listen, and then another pooler may reply on the port: check that it is
            // ours.
            let replied = tokio::select! {
                replied = wait::until("PgBouncer replies", DEADLINE, async || replies(port, &users).await) => Some(replied),
                _ = program.exit(DEADLINE) => None,
            };
            match replied {
                Some(Ok(())) => return Ok(Self { port, program, _folder: folder }),
                Some(Err(_)) => return Err(Error::NoReply { output: program.tail() }),
                None if attempts < ATTEMPTS && program.tail().contains("Address already in use") => {}
                None => {
                    let never = program.wait_for_line(|_| false, Duration::ZERO).await;
                    return match never {
                        Err(error) => Err(error.into()),
                        Ok(_) => Err(Error::NoReply { output: program.tail() }),
                    };
                }
            }
        }
    }

    /// Rewrites a URL of the server to connect through this pooler.
    ///
    /// # Errors
    /// When it is not a URL.
    pub fn url_through(&self, url: &str) -> Result<String, InvalidDatabaseUrl> {
        rewrite_url(url, self.port)
    }

    /// The port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The process, to be suspended or killed.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

fn settings(server: &Address, port: u16, sessions: u32, users: &Path, version: (u32, u32)) -> String {
    let Address { host, port: server_port } = server;
    let users = users.display();
    // Tests must not rely on what 1.18 cannot do.
    let strict = if version >= TRACKS_STATEMENTS { "max_prepared_statements = 0\n" } else { "" };
    // The login retry is for servers that are killed and restarted; the default is 15 seconds.
    format!(
        "[databases]\n\
         * = host={host} port={server_port}\n\
         [pgbouncer]\n\
         listen_addr = {HOST}\n\
         listen_port = {port}\n\
         unix_socket_dir =\n\
         auth_type = trust\n\
         auth_file = {users}\n\
         auth_user = {SUPERUSER}\n\
         admin_users = {SUPERUSER}\n\
         pool_mode = transaction\n\
         default_pool_size = {sessions}\n\
         max_client_conn = 500\n\
         server_login_retry = 1\n\
         ignore_startup_parameters = extra_float_digits\n\
         {strict}"
    )
}

/// Whether the pooler on this port uses our file of users.
async fn replies(port: u16, users: &Path) -> bool {
    let config = async {
        let mut config = tokio_postgres::Config::new();
        config.host(HOST.to_string()).port(port).user(SUPERUSER).dbname("pgbouncer");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        client.simple_query("show config").await
    };
    let users = users.to_str();
    config.await.is_ok_and(|rows| {
        rows.iter().any(|row| matches!(row, SimpleQueryMessage::Row(row) if row.get(1) == users))
    })
}

fn write(path: &Path, text: &str, account: Account) -> Result<(), Error> {
    let written = fs::write(path, text).and_then(|()| account.chown(path));
    written.map_err(system("write the configuration"))
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

#[cfg(test)]
mod tests;
