//! `symphony status`: the backlog of every installed lane.

mod lanes;
mod watch;

use std::time::Duration;

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
};

use lanes::Lanes;

/// Show due, leased, scheduled and dead rows: payments by rail, events and metadata by type
///
/// Counts stop at 10,000 rows of a rail or lane and kind, so that the command is fast beside any backlog; with more
/// than two rails they stop earlier. N+ means N or more. Dead rows are always counted exactly. Lanes that are not
/// installed are left out. With --json the payment lane is at the top level, the others are in events and metadata.
/// Needs a login with the role symphony_readonly, symphony_auditor or symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony status\n  symphony status --watch\n  symphony status --exact\n  \
     symphony status --json | jq .dlq_unknown\n  \
     symphony status --watch 60 --json >> status.jsonl",
))]
pub(crate) struct Arguments {
    /// Repeat at this interval, 1 to 3600, until Ctrl-C (exit code 0); with --json one document per line
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
    /// Count all rows, which takes seconds with millions of them
    #[arg(long, conflicts_with = "watch")]
    exact: bool,
    #[command(flatten)]
    format: OutputFormat,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        if let Some(seconds) = self.watch {
            return watch::run(database, self.format, Duration::from_secs(seconds)).await;
        }
        let client = database.connect().await?;
        let lanes = Lanes::read(&client, self.exact).await?;
        self.format.print(&lanes, || lanes.text())?;
        Ok(ExitStatus::Success)
    }
}
