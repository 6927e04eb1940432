//! The option `--database-url`, and connections to that database.

use symphony_db::connect::{Environment, Target};
use symphony_db::schema;
use tokio_postgres::Client;

use crate::failure::Failure;

/// The database that a command works on.
#[derive(clap::Args)]
pub(crate) struct Database {
    /// Database, as postgres://user@host:5432/db?sslmode=verify-full&sslrootcert=FILE
    ///
    /// The form "host=… user=…" works as well, and PGHOST, PGUSER, PGPASSFILE and the other variables of libpq say what it leaves
    /// out. Prefer variables: other users see arguments in the process list.
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
}

impl Database {
    /// The URL that was given. It may hold a password.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        self.database_url.as_deref().filter(|url| !url.trim().is_empty()).ok_or_else(|| {
            Failure::usage("no database is given: neither --database-url nor DATABASE_URL nor PGHOST is set")
                .hint("for example: export DATABASE_URL=postgres://me@localhost:5432/shop")
        })
    }

    /// The database that was given, or else that of this URL, or else that of the PG… variables, which also say what a URL
    /// leaves out.
    pub(crate) fn target_or(&self, other: &str) -> Result<Target, Failure> {
        let environment = Environment::of_process()?;
        let url = match self.url() {
            Ok(url) => url,
            Err(_) if !other.trim().is_empty() => other,
            Err(_) if environment.names_a_server() => "",
            Err(failure) => return Err(failure),
        };
        Ok(Target::parse_in(url, &environment)?)
    }

    /// Connects without the schema guard, for callers that run the guard or an install themselves.
    pub(crate) async fn open(&self) -> Result<Client, Failure> {
        open(&self.target_or("")?).await
    }

    /// Connects, and refuses a database in which another owner's objects stand in for Symphony's.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        connect(&self.target_or("")?).await
    }
}

/// Connects without the schema guard, for callers that run the guard or an install themselves.
pub(crate) async fn open(target: &Target) -> Result<Client, Failure> {
    Ok(target.connect_session().await?.into_client())
}

/// Connects, and refuses a database in which another owner's objects stand in for Symphony's.
pub(crate) async fn connect(target: &Target) -> Result<Client, Failure> {
    let mut client = open(target).await?;
    schema::guard(&mut client).await?;
    Ok(client)
}
