//! `symphony install`: creates the schema, or brings it to what this build carries.

use std::time::Duration;

use serde::Serialize;
use symphony_outbox::schema::{self, Lane, install::Installed, lock::LOCK_TIMEOUT};

use super::with_examples;
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::{self, Form},
};

/// Create the schema in a database, or bring it to what this build carries
///
/// Everything happens in one transaction: it is all there afterwards, or nothing was changed. A database that is
/// current already is not touched, so this may run at every deployment and by several at once. It needs a
/// superuser, or a user with CREATEROLE and CREATE on the database, or one whom a DBA has granted symphony_control.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony install\n  symphony install --print > symphony.sql   # for a DBA to read, and to run with psql",
))]
pub(crate) struct Arguments {
    /// Install this lane, payment, event or metadata; may be repeated; all of them unless given
    #[arg(long = "lane", value_name = "LANE")]
    lanes: Vec<Lane>,
    /// Wait at most so many seconds, 1 to 3600, for another install, and again for tables that others use
    #[arg(long, value_name = "SECONDS", default_value_t = LOCK_TIMEOUT.as_secs(),
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    lock_timeout: u64,
    /// Print the SQL instead of running it; needs no database
    #[arg(long, conflicts_with = "json")]
    print: bool,
    #[command(flatten)]
    form: Form,
}

#[derive(Serialize)]
struct Report {
    result: &'static str,
    schema_version: i32,
    lanes: Vec<&'static str>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let lanes = if self.lanes.is_empty() { Lane::ALL.to_vec() } else { self.lanes };
        let limit = Duration::from_secs(self.lock_timeout);
        if self.print {
            output::line(&schema::script::script_within(&lanes, limit))?;
            return Ok(Answer::Yes);
        }
        let mut client = database.open().await?;
        let (result, words) = match schema::install::install_within(&mut client, &lanes, limit).await? {
            Installed::Applied => ("installed", "installed"),
            Installed::AlreadyCurrent => ("already_current", "already current, nothing was changed"),
        };
        let report =
            Report { result, schema_version: schema::VERSION, lanes: lanes.iter().map(|l| l.name()).collect() };
        self.form.print(&report, || {
            format!("{words}: schema version {}, lanes: {}", report.schema_version, report.lanes.join(", "))
        })?;
        Ok(Answer::Yes)
    }
}
