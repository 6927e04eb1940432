//! `symphony install`: creates the schema, or migrates it to this build's version.

use std::time::Duration;

use serde::Serialize;
use symphony_db::schema::script::{roles_script, roles_statement, script_within, statement_within};
use symphony_db::schema::{self, Lane, install::Installed, lock::LOCK_TIMEOUT};

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::{self, OutputFormat},
};

/// Create the schema in a database, or migrate it to this build's version
///
/// Runs in one transaction, and changes nothing if the schema is current: run it at every deployment, also
/// concurrently. Needs a superuser, a user with CREATEROLE and CREATE on the database, or a member of
/// symphony_control.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony install\n  symphony install --print > symphony.sql   # for a DBA to read, and to run with psql\n  \
     symphony install --print --no-transaction > symphony.sql   # for Flyway, Alembic, sqlx or another such tool\n  \
     symphony install --roles-only   # on a new server, before a dump is restored there",
))]
pub(crate) struct Arguments {
    /// Install this lane (payment, event or metadata) instead of all; may be repeated
    #[arg(long = "lane", value_name = "LANE")]
    lanes: Vec<Lane>,
    /// Lock timeout, 1 to 3600: for a concurrent install, and again for tables in use
    #[arg(long, value_name = "SECONDS", default_value_t = LOCK_TIMEOUT.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    lock_timeout: u64,
    /// Print the SQL instead of running it; needs no database
    #[arg(long, conflicts_with = "json")]
    print: bool,
    /// With --print: one statement without begin and commit, for a migration tool
    #[arg(long, requires = "print")]
    no_transaction: bool,
    /// Create the roles of this server and nothing else; do this before you restore a dump
    #[arg(long, conflicts_with_all = ["lanes", "json"])]
    roles_only: bool,
    #[command(flatten)]
    format: OutputFormat,
}

#[derive(Serialize)]
struct Report {
    result: &'static str,
    schema_version: i32,
    lanes: Vec<&'static str>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let lanes = if self.lanes.is_empty() { Lane::ALL.to_vec() } else { self.lanes };
        let limit = Duration::from_secs(self.lock_timeout);
        if self.print {
            let script = match (self.roles_only, self.no_transaction) {
                (false, false) => script_within(&lanes, limit),
                (false, true) => statement_within(&lanes, limit),
                (true, false) => roles_script(),
                (true, true) => roles_statement(),
            };
            output::print_line(&script)?;
            return Ok(ExitStatus::Success);
        }
        let mut client = database.open().await?;
        if self.roles_only {
            schema::install::create_roles(&client).await?;
            output::print_line("the server has the roles")?;
            return Ok(ExitStatus::Success);
        }
        let (result, words) = match schema::install::install_within(&mut client, &lanes, limit).await? {
            Installed::Applied => ("installed", "installed"),
            Installed::AlreadyCurrent => ("already_current", "already current, nothing was changed"),
        };
        let report =
            Report { result, schema_version: schema::VERSION, lanes: lanes.iter().map(|l| l.name()).collect() };
        self.format.print(&report, || {
            format!("{words}: schema version {}, lanes: {}", report.schema_version, report.lanes.join(", "))
        })?;
        Ok(ExitStatus::Success)
    }
}
