//! `symphony audit`: what auditors take away.

use std::time::Duration;

use jiff::Timestamp;
use symphony_outbox::OutboxId;
use symphony_outbox::payment::reading::Operation;

use super::with_examples;
use crate::{
    audit::{self, Format, Operations, Range},
    database::Database,
    failure::{Answer, Failure},
    output,
};

/// How long an export waits for transactions that are open.
const EXPORT_WAIT: Duration = Duration::from_secs(5);

/// Write what people did, or the whole story of one payment, as CSV or a JSON object a line
///
/// Without payloads. Needs a login with one of the roles symphony_auditor, symphony_readonly and symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony audit operations --from 2026-05-01T00:00Z --to 2026-06-01T00:00Z > may.csv\n  \
     symphony audit outbox 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --format ndjson",
))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(clap::Subcommand)]
enum What {
    /// The log of operations of a time, in order: who did what, when and why
    ///
    /// Waits for transactions that have done something and are still open, and refuses if one stays open. An export of a time that is not over
    /// ends now: the message on stderr says where, and the next export starts there.
    #[command(after_help = with_examples(
        "  symphony audit operations --from 2026-05-01T00:00Z --to 2026-06-01T00:00Z --format ndjson",
    ))]
    Operations {
        /// Done at this moment or later, as 2026-05-01T00:00Z
        #[arg(long, value_name = "TIME")]
        from: Timestamp,
        /// Done before this moment
        #[arg(long, value_name = "TIME")]
        to: Timestamp,
        /// How it is written
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
    /// Everything that happened to one outbox and that people did about it
    #[command(after_help = with_examples("  symphony audit outbox 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f"))]
    Outbox {
        /// The outbox
        #[arg(value_name = "OUTBOX")]
        outbox_id: OutboxId,
        /// How it is written
        #[arg(long, value_enum, default_value_t)]
        format: Format,
    },
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        match self.what {
            What::Operations { from, to, format } if from < to => {
                operations(database, Range { from, to }, format).await
            }
            What::Operations { .. } => Err(Failure::usage("--from must be before --to")),
            What::Outbox { outbox_id, format } => outbox(database, outbox_id, format).await,
        }
    }
}

/// As it comes: whoever reads decides how much is held at a time.
async fn operations(database: &Database, range: Range, format: Format) -> Result<Answer, Failure> {
    let client = database.connect().await?;
    let Some(complete) = range.complete(&client, EXPORT_WAIT).await? else {
        return Err(Failure::no("--from is later than now, so there is nothing to export yet"));
    };
    if complete.to < range.to {
        output::note(&format!("this export ends at {}; start the next one there", complete.to));
    }
    let mut operations = Operations::of(complete);
    let mut text = format.heading::<Operation>();
    loop {
        let chunk = operations.next(&client).await?;
        text.push_str(&format.lines(&chunk).map_err(unwritten)?);
        if !output::line_is_read(&text)? || chunk.is_empty() {
            return Ok(Answer::Yes);
        }
        text.clear();
    }
}

async fn outbox(database: &Database, id: OutboxId, format: Format) -> Result<Answer, Failure> {
    let client = database.connect().await?;
    let story = audit::story(&client, id).await?;
    let story = story.ok_or_else(|| Failure::no(format!("there is no outbox {id} in this database")))?;
    output::line(&(format.heading::<audit::Line>() + &format.lines(&story).map_err(unwritten)?))?;
    Ok(Answer::Yes)
}

fn unwritten(error: serde_json::Error) -> Failure {
    Failure::because("a record could not be written", error)
}
