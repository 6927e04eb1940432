//! The option `--database-url`, and connections to that database.

use symphony_db::{connect::Target, schema};
use tokio_postgres::Client;

use crate::failure::Failure;

/// The database that a command works on.
#[derive(clap::Args)]
pub(crate) struct Database {
    /// Database, as postgres://user@host:5432/db?sslmode=verify-full&sslrootcert=FILE
    ///
    /// The form "host=… user=…" works as well. Prefer the variable: other users see arguments in the process list.
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
}

impl Database {
    /// The URL that was given. It may hold a password.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        self.database_url.as_deref().filter(|url| !url.trim().is_empty()).ok_or_else(|| {
            Failure::usage("no database is given: neither --database-url nor DATABASE_URL is set")
                .hint("for example: export DATABASE_URL=postgres://me@localhost:5432/shop")
        })
    }

    /// The URL that was given, or else this one.
    pub(crate) fn url_or<'a>(&'a self, other: &'a str) -> Result<&'a str, Failure> {
        if other.trim().is_empty() { self.url() } else { Ok(self.url().unwrap_or(other)) }
    }

    /// Connects without the schema guard, for callers that run the guard or an install themselves.
    pub(crate) async fn open(&self) -> Result<Client, Failure> {
        open(&Target::parse(self.url()?)?).await
    }

    /// Connects, and refuses a database in which another owner's objects stand in for Symphony's.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        connect(&Target::parse(self.url()?)?).await
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
