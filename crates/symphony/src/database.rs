//! The connection that the arguments name.

use symphony_outbox::{connect::Target, schema};
use tokio_postgres::Client;

use crate::failure::Failure;

/// Which database; the same for every command.
#[derive(clap::Args)]
pub(crate) struct Database {
    /// The database, as postgres://user:password@host:5432/database?sslmode=verify-full&sslrootcert=FILE
    ///
    /// A list of name=value does as well. The variable DATABASE_URL keeps the password out of the list of processes.
    #[arg(long, global = true, env = "DATABASE_URL", hide_env_values = true, value_name = "URL")]
    database_url: Option<String>,
}

impl Database {
    /// What was given. It may hold a password.
    pub(crate) fn url(&self) -> Result<&str, Failure> {
        self.database_url.as_deref().filter(|url| !url.trim().is_empty()).ok_or_else(|| {
            Failure::usage("which database? give --database-url, or set DATABASE_URL")
                .hint("for example: export DATABASE_URL=postgres://me@localhost:5432/shop")
        })
    }

    /// What was given, or else this.
    pub(crate) fn url_or<'a>(&'a self, other: &'a str) -> Result<&'a str, Failure> {
        if other.trim().is_empty() { self.url() } else { Ok(self.url().unwrap_or(other)) }
    }

    /// A session in it, for what makes sure itself that nothing of a stranger's runs.
    pub(crate) async fn open(&self) -> Result<Client, Failure> {
        open(&Target::parse(self.url()?)?).await
    }

    /// A session in it, in which everything that is called or read in Symphony's schemas is Symphony's.
    pub(crate) async fn connect(&self) -> Result<Client, Failure> {
        connect(&Target::parse(self.url()?)?).await
    }
}

/// A session there, for what makes sure itself that nothing of a stranger's runs.
pub(crate) async fn open(target: &Target) -> Result<Client, Failure> {
    Ok(target.connect_to_ask().await?.into_client())
}

/// A session there, in which everything that is called or read in Symphony's schemas is Symphony's.
pub(crate) async fn connect(target: &Target) -> Result<Client, Failure> {
    let mut client = open(target).await?;
    schema::guard(&mut client).await?;
    Ok(client)
}
