//! `symphony cancel`: cancels one payment that was never sent.

use symphony_client::payment::tokio_postgres as producer;

use super::{audit_context::AuditContext, with_examples};
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
};

/// Cancel a payment that was never sent
///
/// It ends as FAILED with the code CANCELLED, and its idempotency key stays used. Refused if it has ended, if a worker holds a
/// lease on it, or if it may have been sent. Needs a login with the role symphony_ingest or symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony cancel order-4711/payout --key order-4711/payout/1 --actor ana --reason 'the order was cancelled'",
))]
pub(crate) struct Arguments {
    /// Instruction id of the payment
    #[arg(value_name = "INSTRUCTION")]
    instruction: String,
    /// Its idempotency key
    #[arg(long, value_name = "KEY")]
    key: String,
    #[command(flatten)]
    audit_context: AuditContext,
    #[command(flatten)]
    format: OutputFormat,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let client = database.connect().await?;
        let audit = self.audit_context.given();
        let cancelled = producer::cancel(&client, &self.instruction, &self.key, audit.actor, audit.reason).await?;
        self.format.print(&cancelled, || format!("cancelled: outbox {} was never sent", cancelled.outbox_id))?;
        Ok(ExitStatus::Success)
    }
}
