//! `symphony repair`: one pass over leases that expired, by hand.

use symphony_outbox::payment::worker;
use symphony_outbox::{BatchSize, WorkerId};

use super::with_examples;
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::Form,
    progress,
    table::Table,
};

/// Give back the rows of workers that were not heard of again
///
/// What every relayer does by itself once a minute. Each lease that expired gets its row in the ledger; its instruction is
/// due again, or goes to people at the rail's last attempt. Needs a login with the role symphony_executor.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony repair\n  symphony repair --json | jq length"))]
pub(crate) struct Arguments {
    #[command(flatten)]
    form: Form,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let client = database.connect().await?;
        let worker: WorkerId = format!("repair-{}", std::process::id()).as_str().into();
        let mut repaired = Vec::new();
        loop {
            let pass = worker::repair(&client, &worker, BatchSize::MOST).await?;
            let more = pass.len() >= usize::from(BatchSize::MOST.get());
            repaired.extend(pass);
            if !more {
                break;
            }
            progress::say(&format!("{} leases so far", repaired.len()));
        }
        progress::done();
        self.form.print(&repaired, || text(&repaired))?;
        Ok(Answer::Yes)
    }
}

fn text(repaired: &[worker::Repaired]) -> String {
    if repaired.is_empty() {
        return "no lease has expired\n".to_owned();
    }
    let mut table = Table::new(["outbox", "attempt", "recorded as", "due again", "lost worker"]);
    for row in repaired {
        table.push([
            row.outbox_id.to_string(),
            row.attempt_no.to_string(),
            row.state.to_string(),
            row.next_attempt_at.map_or_else(|| "never: see symphony dlq list".to_owned(), |at| at.to_string()),
            row.lost_worker.to_string(),
        ]);
    }
    table.render()
}
