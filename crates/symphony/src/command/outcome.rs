//! `symphony outcome`: what became of one payment, for its producer.

use jiff::Timestamp;
use symphony_client::payment::{PaymentOutcome, tokio_postgres as producer};
use symphony_console::sanitize::plain;

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
};

/// Print what became of a payment: state, attempts, last codes and times
///
/// It follows an idempotency key to its newest outbox. For the whole timeline, see: symphony inspect. Needs a login with the role
/// symphony_ingest, symphony_operator, symphony_readonly or symphony_auditor.
#[derive(clap::Args)]
#[command(after_help = with_examples("  symphony outcome order-4711/payout --key order-4711/payout/1"))]
pub(crate) struct Arguments {
    /// Instruction id of the payment
    #[arg(value_name = "INSTRUCTION")]
    instruction: String,
    /// Its idempotency key
    #[arg(long, value_name = "KEY")]
    key: String,
    #[command(flatten)]
    format: OutputFormat,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let client = database.connect().await?;
        let outcome = producer::outcome(&client, &self.instruction, &self.key).await?;
        let Some(outcome) = outcome else {
            let message =
                format!("instruction {} has no payment with this idempotency key", plain(&self.instruction));
            return Err(
                Failure::new(message).hint("find the keys of an instruction with: symphony inspect INSTRUCTION")
            );
        };
        self.format.print(&outcome, || text(&outcome))?;
        Ok(ExitStatus::Success)
    }
}

fn text(outcome: &PaymentOutcome) -> String {
    let time = |at: Timestamp| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
    let name = |value: &Option<String>| value.as_deref().map(plain);
    let facts = [
        ("outbox id", Some(outcome.outbox_id.to_string())),
        ("state", Some(outcome.state.to_string())),
        ("attempts", Some(outcome.attempts.to_string())),
        ("paid", outcome.outcome_unknown.then(|| "unknown: it may have been made".to_owned())),
        ("error code", name(&outcome.error_code)),
        ("rail code", name(&outcome.rail_code)),
        ("rail reference", name(&outcome.rail_reference)),
        ("resolution", name(&outcome.resolution)),
        ("enqueued at", Some(time(outcome.created_at))),
        ("last attempt at", outcome.last_attempt_at.map(time)),
        ("next attempt at", outcome.next_attempt_at.map(time)),
        ("ended at", outcome.ended_at.map(time)),
    ];
    facts.into_iter().filter_map(|(label, value)| Some(format!("{label:<16} {}\n", value?))).collect()
}
