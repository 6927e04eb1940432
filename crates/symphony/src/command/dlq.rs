//! `symphony dlq`: lists, redrives and resolves dead letters.

mod redrive;

use symphony_db::{
    BatchSize, OutboxId,
    error::OperateError,
    payment::{
        Resolution, operator,
        reader::{self, DeadLetter, DeadLetterFilter, HeldStream},
    },
};
use tokio_postgres::Client;

use super::{audit_context::AuditContext, with_examples};
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    table::Table,
    values,
};

/// List, redrive and resolve dead letters: payments that failed terminally
///
/// list needs a login with the role symphony_readonly; redrive and resolve need symphony_operator.
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
    /// List dead letters that wait for a decision: unknown outcomes first, then the oldest
    #[command(after_help = with_examples(
        "  symphony dlq list --limit 20\n  symphony dlq list --rail sepa --rail-code AC04",
    ))]
    List {
        /// Maximum number of rows, 1 to 1000
        #[arg(long, value_name = "N", default_value = "100")]
        limit: BatchSize,
        #[command(flatten)]
        filter: Filter,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// List the failures that hold the later payments of their participant: ordered rails with on_failure HOLD
    ///
    /// A redrive takes the place of the failure. PAID and SKIPPED release the later payments; NOT_PAID does not.
    #[command(after_help = with_examples("  symphony dlq held"))]
    Held {
        /// Maximum number of rows, 1 to 1000
        #[arg(long, value_name = "N", default_value = "100")]
        limit: BatchSize,
        #[command(flatten)]
        format: OutputFormat,
    },
    /// Redrive a dead letter, or all that match, each as a new outbox under the same idempotency key
    ///
    /// A bank answers a known key with its first outcome. With --new-key a payment that it refused becomes another payment there.
    /// A filter never matches an unknown outcome: the payment may have been made. Resolve those first, one by one.
    #[command(after_help = with_examples(
        "  symphony dlq redrive 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --actor ana --reason 'account was corrected'\n  \
         symphony dlq redrive 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --new-key order-4711/payout/2 --payload '{…}' --actor ana --reason 'new IBAN'\n  \
         symphony dlq redrive --rail sepa --rail-code AC04 --dry-run\n  \
         symphony dlq redrive --rail sepa --rail-code AC04 --expect 12 --actor ana --reason 'accounts were corrected'",
    ))]
    Redrive(redrive::Arguments),
    /// Resolve a dead letter: record what you found out, with the evidence as the reason
    #[command(after_help = with_examples(
        "  symphony dlq resolve 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --as PAID --actor ana --reason 'statement of 3 May'",
    ))]
    Resolve {
        /// Outbox id of the dead letter
        #[arg(value_name = "OUTBOX", value_parser = values::dead_letter_id)]
        outbox_id: OutboxId,
        /// Resolution: it was paid, it was not paid, or a known failure needs no further attempt
        #[arg(long = "as", value_name = "PAID|NOT_PAID|SKIPPED")]
        resolution: Resolution,
        #[command(flatten)]
        audit_context: AuditContext,
        #[command(flatten)]
        format: OutputFormat,
    },
}

/// Which dead letters: all, without an option.
#[derive(clap::Args)]
struct Filter {
    /// Filter: dead letters of this rail
    #[arg(long, value_name = "NAME")]
    rail: Option<String>,
    /// Filter: with this error code of Symphony, such as RAIL_REFUSED
    #[arg(long, value_name = "CODE")]
    error_code: Option<String>,
    /// Filter: with this code of the rail, such as AC04
    #[arg(long, value_name = "CODE")]
    rail_code: Option<String>,
}

impl Filter {
    fn of_all(&self) -> DeadLetterFilter {
        DeadLetterFilter {
            outcome_unknown: None,
            rail_type: self.rail.clone(),
            error_code: self.error_code.clone(),
            rail_code: self.rail_code.clone(),
        }
    }
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let client = database.connect().await?;
        match self.action {
            Action::List { limit, filter, format } => {
                let letters = reader::dead_letters(&client, &filter.of_all(), limit).await?;
                format.print(&letters, || text(&letters))?;
            }
            Action::Held { limit, format } => {
                let held = reader::held_streams(&client, limit).await?;
                format.print(&held, || held_text(&held))?;
            }
            Action::Redrive(arguments) => return arguments.run(&client).await,
            Action::Resolve { outbox_id, resolution, audit_context, format } => {
                let resolved = operator::resolve(&client, outbox_id, resolution, audit_context.given()).await;
                let resolved = or_not_found(&client, outbox_id, resolved).await?;
                format.print(&resolved, || format!("outbox {outbox_id} is resolved as {resolution}"))?;
            }
        }
        Ok(ExitStatus::Success)
    }
}

/// Turns a refused argument into "not found" where the outbox does not exist.
async fn or_not_found<T>(
    client: &Client,
    outbox_id: OutboxId,
    done: Result<T, OperateError>,
) -> Result<T, Failure> {
    if let Err(OperateError::InvalidArgument(_)) = &done
        // If this query fails, the refusal is the better message.
        && reader::timeline(client, outbox_id).await.is_ok_and(|events_of_row| events_of_row.is_empty())
    {
        return Err(Failure::new(format!("there is no outbox {outbox_id} in this database"))
            .hint("list the dead letters with: symphony dlq list"));
    }
    Ok(done?)
}

fn held_text(held: &[HeldStream]) -> String {
    if held.is_empty() {
        return "no failure holds later payments".to_owned();
    }
    let mut table = Table::new(["outbox", "instruction", "participant", "rail", "error", "paid?", "held since"]);
    for failure in held {
        table.push([
            failure.outbox_id.to_string(),
            failure.instruction_id.clone().unwrap_or_default(),
            failure.participant_id.clone(),
            failure.rail_type.clone(),
            failure.error_code.clone().unwrap_or_default(),
            match (failure.resolution, failure.outcome_unknown) {
                (Some(resolution), _) => resolution.to_string(),
                (None, true) => "unknown".to_owned(),
                (None, false) => "no".to_owned(),
            },
            failure.held_at.strftime("%Y-%m-%d %H:%MZ").to_string(),
        ]);
    }
    table.render()
}

fn text(letters: &[DeadLetter]) -> String {
    if letters.is_empty() {
        return "the dead-letter queue is empty".to_owned();
    }
    let mut table = Table::new([
        "outbox",
        "instruction",
        "participant",
        "rail",
        "attempts",
        "error",
        "rail code",
        "paid?",
        "failed at",
    ]);
    for letter in letters {
        table.push([
            letter.outbox_id.to_string(),
            letter.instruction_id.clone(),
            letter.participant_id.clone(),
            letter.rail_type.clone(),
            letter.attempt_no.to_string(),
            letter.error_code.clone(),
            letter.rail_code.clone().unwrap_or_default(),
            if letter.outcome_unknown { "unknown".to_owned() } else { "no".to_owned() },
            letter.failed_at.strftime("%Y-%m-%d %H:%M:%SZ").to_string(),
        ]);
    }
    table.render()
}
