//! Test databases with Symphony installed: one for each test and each proof, dropped afterwards.
//!
//! Symphony is installed once per server, into a template database that is cloned for each test. All clones share the
//! roles of the server, so each login that a test creates has a random name.
//!
//! # Layout
//!
//! - [`Server`]: creates databases from a template
//! - [`Database`]: one clone, removed on drop
//! - [`SharedServer`]: a server that other applications use; a run leaves no trace on it

mod database;
mod shared_server;

use std::hash::{BuildHasher, DefaultHasher, Hash, Hasher, RandomState};
use std::time::{Duration, Instant};

use symphony_db::connect::{self, Target};
use symphony_db::schema::{Lane, script};
use tokio::sync::OnceCell;
use tokio_postgres::Client;
use tokio_postgres::error::SqlState;

use super::postgres::{self, Binaries, Cluster, FindError, Options};
pub use database::Database;
pub use shared_server::SharedServer;

/// The environment variable with the URL of the server, set by `with-postgres`.
const SERVER_VARIABLE: &str = "SYMPHONY_TEST_SERVER";
/// How long to wait until no session uses the template.
const TEMPLATE_TIMEOUT: Duration = Duration::from_secs(30);
const PIN_SEARCH_PATH: &str = "set search_path = pg_catalog, pg_temp";
const POLL_INTERVAL: Duration = Duration::from_millis(20);
/// The advisory lock under which a template is created once.
const TEMPLATE_LOCK: i64 = 7_000_000_001;

/// The server of this process if SYMPHONY_TEST_SERVER is not set. It ends with the process.
static PRIVATE: OnceCell<Cluster> = OnceCell::const_new();

/// Why a test database could not be created or removed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// PostgreSQL was not found.
    #[error("no server: {SERVER_VARIABLE} is not set, and no PostgreSQL installation was found")]
    Find(#[from] FindError),
    /// The private server did not start.
    #[error("the private server did not start")]
    Start(#[from] postgres::Error),
    /// The server refused a statement.
    #[error("could not {what}")]
    Refused {
        /// The operation.
        what: String,
        /// The error of the server.
        source: tokio_postgres::Error,
    },
    /// The login lacks a privilege that the proofs need.
    #[error("the login {user} {lacks}")]
    Rights {
        /// The login.
        user: String,
        /// The missing privilege.
        lacks: &'static str,
    },
    /// The URL is invalid, or the connection failed.
    #[error("could not connect")]
    Connect(#[from] connect::Error),
}

/// Wraps an error of the server with the operation.
fn refused(what: impl Into<String>) -> impl FnOnce(tokio_postgres::Error) -> Error {
    move |source| Error::Refused { what: what.into(), source }
}

/// A server on which test databases are created, with a superuser login.
#[derive(Clone, Debug)]
pub struct Server {
    target: Target,
    template: String,
}

impl Server {
    /// The server of `SYMPHONY_TEST_SERVER`, or else a private server of this process.
    pub async fn from_env() -> Result<Self, Error> {
        if let Some(url) = std::env::var(SERVER_VARIABLE).ok().filter(|url| !url.is_empty()) {
            return Self::at(&url);
        }
        let cluster = PRIVATE
            .get_or_try_init(|| async {
                let cluster = Cluster::start(&Binaries::find()?, Options::default()).await?;
                Ok::<_, Error>(cluster)
            })
            .await?;
        Self::at(&cluster.url("postgres"))
    }

    /// The server at this URL, whose user must be a superuser.
    pub fn at(url: &str) -> Result<Self, Error> {
        Ok(Self { target: Target::parse(url)?, template: template_name() })
    }

    /// The name of the template database with Symphony installed. The first caller creates it.
    ///
    /// It accepts no connections, so that a clone never waits for a session.
    pub async fn template(&self) -> Result<String, Error> {
        let name = self.template.clone();
        let admin = self.admin().await?;
        let lock = "select pg_advisory_lock($1)";
        admin.execute(lock, &[&TEMPLATE_LOCK]).await.map_err(refused("lock the template"))?;
        let made = "select datistemplate from pg_database where datname = $1";
        let made = admin.query_opt(made, &[&name]).await.map_err(refused("look for the template"))?;
        // Marked as a template when it is complete: without the mark, its creation was interrupted.
        if made.is_some_and(|row| row.get(0)) {
            return Ok(name);
        }
        self.make_template(&admin, &name).await?;
        Ok(name)
    }

    /// A new clone of the template.
    pub async fn database(&self) -> Result<Database, Error> {
        let template = self.template().await?;
        let name = format!("symphony_test_{:016x}", RandomState::new().hash_one(std::process::id()));
        let admin = self.admin().await?;
        clone(&admin, &template, &name).await?;
        Ok(Database::new(self.clone(), name))
    }

    /// A new empty database.
    pub async fn empty_database(&self) -> Result<Database, Error> {
        let name = format!("symphony_test_{:016x}", RandomState::new().hash_one(std::process::id()));
        let admin = self.admin().await?;
        clone(&admin, "template0", &name).await?;
        Ok(Database::new(self.clone(), name))
    }

    async fn make_template(&self, admin: &Client, name: &str) -> Result<(), Error> {
        remove_template(admin, name).await?;
        let create = format!("create database {name} template template0");
        admin.batch_execute(&create).await.map_err(refused("create the template"))?;
        let client = self.session(name).await?;
        let strict = "set plpgsql.extra_errors = 'all'";
        client.batch_execute(strict).await.map_err(refused("set up the install"))?;
        client.batch_execute(&script(&Lane::ALL)).await.map_err(refused("install Symphony into the template"))?;
        drop(client);
        let mark = format!("alter database {name} with is_template true allow_connections false");
        admin.batch_execute(&mark).await.map_err(refused("mark the template"))
    }

    /// A session in this database.
    async fn session(&self, database: &str) -> Result<Client, Error> {
        Ok(self.target.database(database).connect().await?)
    }

    /// A session in the database of the URL, which is not a test database.
    async fn admin(&self) -> Result<Client, Error> {
        let admin = self.target.connect().await?;
        // This database belongs to others. A schema named like the login could contain operators that a superuser would
        // execute.
        admin.batch_execute(PIN_SEARCH_PATH).await.map_err(refused("pin the search_path"))?;
        Ok(admin)
    }
}

/// A name with a hash of the schema, so that a server can have templates of several builds.
fn template_name() -> String {
    let mut hasher = DefaultHasher::new();
    script(&Lane::ALL).hash(&mut hasher);
    format!("symphony_template_{:016x}", hasher.finish())
}

/// Clones a template; retries while a session is connected to it.
async fn clone(admin: &Client, template: &str, name: &str) -> Result<(), Error> {
    let deadline = Instant::now() + TEMPLATE_TIMEOUT;
    let create = format!("create database {name} template {template}");
    loop {
        match admin.batch_execute(&create).await {
            Err(error) if error.code() == Some(&SqlState::OBJECT_IN_USE) && Instant::now() < deadline => {
                tokio::time::sleep(POLL_INTERVAL).await;
            }
            done => return done.map_err(refused("clone the template")),
        }
    }
}

/// Removes a template, complete or not.
async fn remove_template(admin: &Client, name: &str) -> Result<(), Error> {
    let made = "select from pg_database where datname = $1";
    let made = admin.query_opt(made, &[&name]).await.map_err(refused("look for the template"))?;
    if made.is_some() {
        let unmark = format!("alter database {name} with is_template false");
        admin.batch_execute(&unmark).await.map_err(refused("unmark the template"))?;
    }
    remove_database(admin, name).await
}

/// Drops a database and terminates its sessions.
async fn remove_database(admin: &Client, name: &str) -> Result<(), Error> {
    let drop = format!("drop database if exists {name} with (force)");
    admin.batch_execute(&drop).await.map_err(refused(format!("drop database {name}")))
}
