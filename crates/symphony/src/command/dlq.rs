//! `symphony dlq`: the dead letters, and what people decide about them.

mod redrive;

use symphony_outbox::{
    BatchSize, OutboxId,
    error::OperateError,
    payment::{
        Resolution, operator,
        reading::{self, DeadLetter},
    },
};
use tokio_postgres::Client;

use super::{warrant::Warrant, with_examples};
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::Form,
    table::Table,
};

/// List the payments that failed for good, resolve them, and try them again
///
/// To list needs a login with the role symphony_readonly, all else one with symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony dlq list\n  \
     symphony dlq resolve OUTBOX --as NOT_PAID --actor ana --reason 'statement of 3 May: not booked'\n  \
     symphony dlq redrive OUTBOX --actor ana --reason 'account was corrected'",
))]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(clap::Subcommand)]
enum Action {
    /// List the failures that wait for a person: those with an unknown outcome first, then the oldest
    #[command(after_help = with_examples("  symphony dlq list --limit 20"))]
    List {
        /// At most so many, 1 to 1000
        #[arg(long, value_name = "N", default_value = "100")]
        limit: BatchSize,
        #[command(flatten)]
        form: Form,
    },
    /// Try a failure again, or all that fit, each as a new outbox under the same idempotency key
    ///
    /// What may have been paid is never among those that fit: it is resolved first, one by one.
    #[command(after_help = with_examples(
        "  symphony dlq redrive 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --actor ana --reason 'account was corrected'\n  \
         symphony dlq redrive --rail sepa --error-code NO_ACCOUNT --dry-run\n  \
         symphony dlq redrive --rail sepa --error-code NO_ACCOUNT --expect 12 --actor ana --reason 'accounts were corrected'",
    ))]
    Redrive(redrive::Arguments),
    /// Record what you found out about a failure, with the evidence as the reason
    #[command(after_help = with_examples(
        "  symphony dlq resolve 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --as PAID --actor ana --reason 'statement of 3 May'",
    ))]
    Resolve {
        /// The outbox that failed
        #[arg(value_name = "OUTBOX")]
        outbox_id: OutboxId,
        /// What is so: it was paid, it was not, or a known failure is let be
        #[arg(long = "as", value_name = "PAID|NOT_PAID|SKIPPED")]
        resolution: Resolution,
        #[command(flatten)]
        warrant: Warrant,
        #[command(flatten)]
        form: Form,
    },
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let client = database.connect().await?;
        match self.action {
            Action::List { limit, form } => {
                let letters = reading::dead_letters(&client, limit).await?;
                form.print(&letters, || text(&letters))?;
            }
            Action::Redrive(arguments) => return arguments.run(&client).await,
            Action::Resolve { outbox_id, resolution, warrant, form } => {
                let resolved = operator::resolve(&client, outbox_id, resolution, warrant.given()).await;
                let resolved = known(&client, outbox_id, resolved).await?;
                form.print(&resolved, || format!("outbox {outbox_id} is resolved as {resolution}"))?;
            }
        }
        Ok(Answer::Yes)
    }
}

/// What was done; a refusal of an argument is another matter where there is no such outbox.
async fn known<T>(client: &Client, outbox_id: OutboxId, done: Result<T, OperateError>) -> Result<T, Failure> {
    if let Err(OperateError::InvalidArgument(_)) = &done
        // Should this fail, the refusal is the better answer.
        && reading::story(client, outbox_id).await.is_ok_and(|story| story.is_empty())
    {
        return Err(Failure::no(format!("there is no outbox {outbox_id} in this database"))
            .hint("see which there are with: symphony dlq list"));
    }
    Ok(done?)
}

fn text(letters: &[DeadLetter]) -> String {
    if letters.is_empty() {
        return "no payment waits for a person".to_owned();
    }
    let mut table =
        Table::new(["outbox", "instruction", "participant", "rail", "attempts", "error", "paid?", "failed at"]);
    for letter in letters {
        table.push([
            letter.outbox_id.to_string(),
            letter.instruction_id.clone(),
            letter.participant_id.clone(),
            letter.rail_type.clone(),
            letter.attempt_no.to_string(),
            letter.error_code.clone(),
            if letter.outcome_unknown { "nobody knows".to_owned() } else { "no".to_owned() },
            letter.failed_at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        ]);
    }
    table.render()
}
