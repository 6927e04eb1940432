//! `symphony status`: what is going on now, in total and by rail.

mod watch;

use std::time::Duration;

use symphony_outbox::payment::reading::{self, Status};

use super::with_examples;
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::Form,
    table::Table,
};

/// Show what is due, leased, scheduled and dead, in total and by rail
///
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
        let status = reading::status(&client).await?;
        self.form.print(&status, || text(&status))?;
        Ok(Answer::Yes)
    }
}

fn text(status: &Status) -> String {
    let heading = ["rail", "due", "leased", "expired", "scheduled", "oldest due", "dead", "unknown", "paused"];
    let mut table = Table::new(heading);
    for rail in &status.rails {
        table.push([
            rail.rail_type.clone(),
            rail.due.to_string(),
            rail.leased.to_string(),
            rail.expired.to_string(),
            rail.scheduled.to_string(),
            format!("{:.1}s", rail.oldest_due_age_seconds),
            rail.dlq.to_string(),
            rail.dlq_unknown.to_string(),
            if rail.paused { "paused".to_owned() } else { "no".to_owned() },
        ]);
    }
    table.push([
        "total".to_owned(),
        status.due.to_string(),
        status.leased.to_string(),
        status.expired.to_string(),
        status.scheduled.to_string(),
        format!("{:.1}s", status.oldest_due_age_seconds),
        status.dlq.to_string(),
        status.dlq_unknown.to_string(),
        status.rails.iter().filter(|rail| rail.paused).count().to_string(),
    ]);
    let mut text = table.render();
    if status.rails.is_empty() {
        text.push_str(
            "no rail is registered yet; register one with: symphony rail set NAME --actor … --reason …\n",
        );
    }
    text
}
