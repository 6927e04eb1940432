//! `symphony audit`: exports the audit log, or the history of one payment, for auditors.

use std::time::Duration;

use jiff::Timestamp;
use symphony_db::OutboxId;
use symphony_db::payment::reader::Operation;

use symphony_console::export::{self, Format, Operations, Range};

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output, values,
};

/// How long an export waits for open transactions that may still write to the audit log.
const EXPORT_WAIT: Duration = Duration::from_secs(5);

/// Export the audit log, or the history of one payment, as CSV or NDJSON
///
/// Payloads are left out. Needs a login with the role symphony_auditor, symphony_readonly or symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony audit operations --from 2026-05-01 --to 2026-06-01 > may.csv\n  \
     symphony audit outbox 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --format ndjson",
))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// Export the audit log of a period, in order: who did what, when and why
    ///
    /// Waits up to 5 s for open transactions that have written, and fails if one stays open. If the period ends in
    /// the future, the export ends now; a message on stderr says at which time, and the next export starts there.
    #[command(after_help = with_examples(
        "  symphony audit operations --from 2026-05-01T09:30Z --to 2026-06-01 --format ndjson",
    ))]
    Operations {
        /// Start of the period, inclusive: a date, which begins at midnight UTC, or a time such as 2026-05-01T09:30Z
        #[arg(long, value_name = "TIME", value_parser = values::time)]
        from: Timestamp,
        /// End of the period, exclusive
        #[arg(long, value_name = "TIME", value_parser = values::time)]
        to: Timestamp,
        /// Output format: csv or ndjson
        #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
        format: Format,
    },
    /// Export the history of one outbox: attempts, leases and operations
    #[command(after_help = with_examples("  symphony audit outbox 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f"))]
    Outbox {
        /// Outbox id
        #[arg(value_name = "OUTBOX", value_parser = values::outbox_id)]
        outbox_id: OutboxId,
        /// Output format: csv or ndjson
        #[arg(long, value_enum, default_value_t, hide_possible_values = true)]
        format: Format,
    },
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        match self.what {
            What::Operations { from, to, format } if from < to => {
                operations(database, Range { from, to }, format).await
            }
            What::Operations { .. } => {
                Err(Failure::usage("--from is not before --to").hint("give the earlier time as --from"))
            }
            What::Outbox { outbox_id, format } => outbox(database, outbox_id, format).await,
        }
    }
}

/// Streams the export in chunks, so that the reader's pace limits memory.
async fn operations(database: &Database, range: Range, format: Format) -> Result<ExitStatus, Failure> {
    let client = database.connect().await?;
    let Some(complete) = range.complete(&client, EXPORT_WAIT).await? else {
        return Err(Failure::new("nothing to export yet: --from is in the future"));
    };
    if complete.to < range.to {
        output::print_note(&format!("this export ends at {}; start the next one with --from {0}", complete.to));
    }
    let mut operations = Operations::of(complete);
    let mut text = format.header::<Operation>().map_err(unwritten)?;
    loop {
        let chunk = operations.next(&client).await?;
        text.push_str(&format.lines(&chunk).map_err(unwritten)?);
        if !output::try_print_line(&text)? || chunk.is_empty() {
            return Ok(ExitStatus::Success);
        }
        text.clear();
    }
}

async fn outbox(database: &Database, id: OutboxId, format: Format) -> Result<ExitStatus, Failure> {
    let client = database.connect().await?;
    let timeline = export::timeline(&client, id).await?;
    let timeline = timeline.ok_or_else(|| not_found(id))?;
    let header = format.header::<export::TimelineRecord>().map_err(unwritten)?;
    output::print_line(&(header + &format.lines(&timeline).map_err(unwritten)?))?;
    Ok(ExitStatus::Success)
}

fn not_found(id: OutboxId) -> Failure {
    Failure::new(format!("there is no outbox {id} in this database"))
        .hint("find it with: symphony inspect INSTRUCTION")
}

fn unwritten(error: export::Error) -> Failure {
    Failure::because("cannot write a record", error)
}
