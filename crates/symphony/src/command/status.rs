//! `symphony status`: what is going on now, in every lane that is installed.

mod lanes;
mod watch;

use std::time::Duration;

use super::with_examples;
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::Form,
};

use lanes::Lanes;

/// Show what is due, leased, scheduled and dead: payments by rail, events and metadata by type
///
/// Says nothing of lanes that are not installed. With --json the payment lane is at the top, and the others are in events and metadata.
/// Needs a login with one of the roles symphony_readonly, symphony_auditor and symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony status\n  symphony status --watch\n  symphony status --json | jq .dlq_unknown\n  \
     symphony status --watch 60 --json >> status.jsonl",
))]
pub(crate) struct Arguments {
    /// Look again every so many seconds, 1 to 3600, until Ctrl-C, which ends it with 0; with --json one document a line
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2",
          value_parser = clap::value_parser!(u64).range(1..=3600))]
    watch: Option<u64>,
    #[command(flatten)]
    form: Form,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        if let Some(seconds) = self.watch {
            return watch::run(database, self.form, Duration::from_secs(seconds)).await;
        }
        let client = database.connect().await?;
        let lanes = Lanes::look(&client).await?;
        self.form.print(&lanes, || lanes.text())?;
        Ok(Answer::Yes)
    }
}
