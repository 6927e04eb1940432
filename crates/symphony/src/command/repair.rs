//! `symphony repair`: requeues payments whose lease has expired.

use symphony_db::payment::worker;
use symphony_db::{BatchSize, WorkerId};

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    progress,
    table::Table,
};

/// Requeue payments whose lease has expired
///
/// Every relayer does so once a minute, in parts where many payments are due; this command reads all due payments at
/// once. Each expired lease gets its row in the ledger. Its payment is due again, or becomes a dead letter after the
/// rail's max_attempts. Needs a login with the role symphony_executor.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony repair\n  symphony repair --json | jq length"))]
pub(crate) struct Arguments {
    #[command(flatten)]
    format: OutputFormat,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let client = database.connect().await?;
        let worker: WorkerId = format!("repair-{}", std::process::id()).as_str().into();
        let mut repaired = Vec::new();
        loop {
            let pass = worker::repair_all(&client, &worker, BatchSize::MAX).await?;
            let more = pass.len() >= usize::from(BatchSize::MAX.get());
            repaired.extend(pass);
            if !more {
                break;
            }
            progress::show(&format!("{} expired leases so far", repaired.len()));
        }
        progress::clear();
        self.format.print(&repaired, || text(&repaired))?;
        Ok(ExitStatus::Success)
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
