//! PgBouncer in transaction mode in front of a server: sessions of clients share a few sessions of the server, and keep
//! none of them between transactions.
//!
//! It trusts every client on the loopback address, as the private servers of the kit do, under whatever name the
//! server knows. Prepared statements that outlive their transaction do not work, as nothing else that belongs to a
//! session: version 1.18 knows no way to follow them, and that is the version to hold out against.
//!
//! # Layout
//!
//! - [`Pooler`]: one PgBouncer, from start to end
//! - `search`: which `pgbouncer` to run

mod search;

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use tokio_postgres::{NoTls, SimpleQueryMessage};

use super::account::Account;
pub use super::address::Unusable;
use super::address::{Address, by_way_of};
use super::folder::Folder;
use super::port::{HOST, free_port};
use super::process::{self, Launch, Program};
use super::wait;
pub use search::{FindError, Found, find};

/// Who looks up the users that the server knows, and may look at the pooler itself.
const SUPERUSER: &str = "postgres";
/// The first version that can follow prepared statements.
const FOLLOWS_STATEMENTS: (u32, u32) = (1, 21);
/// How long it may take to answer.
const DEADLINE: Duration = Duration::from_secs(60);
/// How often another process may take the port first.
const ATTEMPTS: usize = 20;

/// Why there is no pooler.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There is no PgBouncer to run. Install it.
    #[error(transparent)]
    Find(#[from] FindError),
    /// The server's address cannot be used. Give another.
    #[error(transparent)]
    Address(#[from] Unusable),
    /// The system refused something. It says what.
    #[error("could not {what}")]
    System {
        /// What was tried.
        what: &'static str,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The program did not start, or ended. Its output says why.
    #[error(transparent)]
    Program(#[from] process::Error),
    /// The program runs and does not answer. Its output may say why.
    #[error("PgBouncer did not answer within {DEADLINE:?}; the end of its output:\n{output}")]
    Silent {
        /// The end of its output.
        output: String,
    },
}

/// A PgBouncer in transaction mode. It ends when this is dropped.
#[derive(Debug)]
pub struct Pooler {
    port: u16,
    // Before the folder, which holds its configuration.
    program: Program,
    _folder: Folder,
}

impl Pooler {
    /// Starts a pooler in front of the server that this URL leads to, which may have so many sessions of the server for
    /// each user and database, and returns when it answers. The server need not run; it has to trust this machine.
    ///
    /// # Errors
    /// When there is no PgBouncer, the URL does not name one host and port, or it does not start.
    pub async fn before(url: &str, sessions: u32) -> Result<Self, Error> {
        let server = Address::of(url)?;
        let Found { program, version } = find()?;
        let account = Account::for_server().map_err(system("find a user for PgBouncer"))?;
        let folder = Folder::create(account).map_err(system("make a temporary folder"))?;
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
            // It ends where it cannot listen, and another may answer in its place: it has to be ours that answers.
            let answered = tokio::select! {
                answered = wait::until("it answers", DEADLINE, async || answers(port, &users).await) => Some(answered),
                _ = program.exit(DEADLINE) => None,
            };
            match answered {
                Some(Ok(())) => return Ok(Self { port, program, _folder: folder }),
                Some(Err(_)) => return Err(Error::Silent { output: program.tail() }),
                None if attempts < ATTEMPTS && program.tail().contains("Address already in use") => {}
                None => {
                    let never = program.wait_for_line(|_| false, Duration::ZERO).await;
                    return match never {
                        Err(error) => Err(error.into()),
                        Ok(_) => Err(Error::Silent { output: program.tail() }),
                    };
                }
            }
        }
    }

    /// A URL of the server, by way of this pooler.
    ///
    /// # Errors
    /// When it is no URL.
    pub fn instead_of(&self, url: &str) -> Result<String, Unusable> {
        by_way_of(url, self.port)
    }

    /// The port on the loopback address.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The program, to be stopped or killed.
    pub fn program(&self) -> &Program {
        &self.program
    }
}

fn settings(server: &Address, port: u16, sessions: u32, users: &Path, version: (u32, u32)) -> String {
    let Address { host, port: server_port } = server;
    let users = users.display();
    // No test may rely on what 1.18 cannot do.
    let strict = if version >= FOLLOWS_STATEMENTS { "max_prepared_statements = 0\n" } else { "" };
    // The retry is for servers that are killed and come back: by default it waits a quarter of a minute.
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

/// Whether a pooler that has our file of users listens there.
async fn answers(port: u16, users: &Path) -> bool {
    let asked = async {
        let mut config = tokio_postgres::Config::new();
        config.host(HOST.to_string()).port(port).user(SUPERUSER).dbname("pgbouncer");
        let (client, connection) = config.connect(NoTls).await?;
        tokio::spawn(connection);
        client.simple_query("show config").await
    };
    let users = users.to_str();
    asked.await.is_ok_and(|rows| {
        rows.iter().any(|row| matches!(row, SimpleQueryMessage::Row(row) if row.get(1) == users))
    })
}

fn write(path: &Path, text: &str, account: Account) -> Result<(), Error> {
    let written = fs::write(path, text).and_then(|()| account.take(path));
    written.map_err(system("write the configuration"))
}

fn system(what: &'static str) -> impl FnOnce(io::Error) -> Error {
    move |source| Error::System { what, source }
}

#[cfg(test)]
mod tests;
