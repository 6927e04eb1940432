//! `symphony inspect`: the history of an instruction, over all of its outboxes.

mod timeline;

use std::collections::BTreeSet;

use serde::Serialize;
use symphony_db::{
    OutboxId,
    payment::reader::{self, ArchivedOutbox, Operation, Pending, TimelineEvent},
};
pub(super) use timeline::text;
use tokio_postgres::Client;

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
};

/// Show the history of an instruction: every attempt, lease and operation
///
/// All of its outboxes, in order, in UTC. Payloads are never shown. Needs a login with the role symphony_readonly,
/// symphony_auditor or symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony inspect pay-1\n  symphony inspect 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --json",
))]
pub(crate) struct Arguments {
    /// Outbox id, instruction id, or the idempotency key of an archived payment
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    format: OutputFormat,
}

/// The history of one instruction.
#[derive(Serialize)]
pub(super) struct InstructionHistory {
    pub(super) instruction_id: String,
    pub(super) events: Vec<TimelineEvent>,
    pub(super) operations: Vec<Operation>,
    /// The current state of its pending outboxes.
    pub(super) pending: Vec<Pending>,
    /// Its outboxes whose ledger rows were archived.
    pub(super) archived: Vec<ArchivedOutbox>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let client = database.connect().await?;
        let history = read(&client, &self.id).await?.ok_or_else(|| {
            Failure::new(format!(
                "there is no outbox and no instruction with the id {:?} in this database",
                self.id
            ))
            .hint("check the id, and that the database is the right one")
        })?;
        self.format.print(&history, || text(&history))?;
        Ok(ExitStatus::Success)
    }
}

/// Reads the history of the outbox or the instruction with this id.
pub(super) async fn read(client: &Client, id: &str) -> Result<Option<InstructionHistory>, Failure> {
    // An instruction id may be a UUID as well, so an id without an outbox is read as an instruction id.
    let of_outbox = match id.parse::<OutboxId>() {
        Ok(outbox_id) => reader::timeline(client, outbox_id).await?,
        Err(_) => Vec::new(),
    };
    let instruction_id = of_outbox.first().map_or(id, |event| event.instruction_id.as_str()).to_owned();
    let events = reader::instruction_timeline(client, &instruction_id).await?;
    let archived = reader::archived_outboxes(client, &instruction_id).await?;
    if events.is_empty() && archived.is_empty() {
        return Ok(None);
    }
    let (mut operations, mut pending) = (Vec::new(), Vec::new());
    for outbox_id in events.iter().map(|event| event.outbox_id).collect::<BTreeSet<_>>() {
        // A redrive belongs to two outboxes; it is listed once, with the dead letter.
        let done = reader::operations(client, outbox_id).await?;
        operations.extend(done.into_iter().filter(|operation| operation.outbox_id == Some(outbox_id)));
        pending.extend(reader::pending(client, outbox_id).await?);
    }
    Ok(Some(InstructionHistory { instruction_id, events, operations, pending, archived }))
}
