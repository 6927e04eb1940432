//! `symphony erase`: replaces the payload of a payment that has ended by a tombstone.

use std::collections::BTreeSet;

use symphony_db::OutboxId;
use symphony_db::payment::operator::{self, Erased};
use symphony_db::payment::reader::{self, OutboxSearch};
use tokio_postgres::Client;

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    values,
};

/// Outboxes per page when the payments of an instruction are looked up.
const PAGE_SIZE: i32 = 200;

/// Erase the payload of a payment that has ended: the ledger keeps a tombstone with a salted digest
///
/// All outboxes that redrives link with it are erased with it, in one transaction: all or nothing. A pending payment
/// and an unresolved dead letter are refused. Needs a login with the role symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony erase 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --actor ana --reason 'request 17 of the customer'\n  \
     symphony erase --instruction pay-1 --dry-run",
))]
pub(crate) struct Arguments {
    /// Outbox id of the payment
    #[arg(value_name = "OUTBOX", value_parser = values::outbox_id, conflicts_with = "instruction", required_unless_present = "instruction")]
    outbox_id: Option<OutboxId>,
    /// Erase all payments of this instruction
    #[arg(long, value_name = "ID")]
    instruction: Option<String>,
    /// Try it and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Your name, for the audit log
    #[arg(long, value_name = "NAME", required_unless_present = "dry_run")]
    actor: Option<String>,
    /// Why you do it, for the audit log
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let mut client = database.connect().await?;
        let outboxes = self.outboxes(&client).await?;
        let audit = operator::AuditContext {
            actor: self.actor.as_deref().unwrap_or("dry run"),
            reason: self.reason.as_deref().unwrap_or("dry run"),
        };
        let transaction = client.transaction().await?;
        let (mut payments, mut done) = (Vec::<Erased>::new(), BTreeSet::new());
        for outbox_id in outboxes {
            if done.contains(&outbox_id) {
                continue;
            }
            let erased = operator::erase(&transaction, outbox_id, audit).await;
            let erased = erased.map_err(|error| Failure::from(error).with_context("nothing was erased"))?;
            done.extend(erased.outbox_ids.iter().copied());
            payments.push(erased);
        }
        if self.dry_run {
            transaction.rollback().await?;
        } else {
            transaction.commit().await?;
        }
        self.format.print(&payments, || text(&payments, self.dry_run))?;
        Ok(ExitStatus::Success)
    }

    /// The outboxes to erase: the one given, or those of the instruction with a payload.
    async fn outboxes(&self, client: &Client) -> Result<Vec<OutboxId>, Failure> {
        let Some(instruction) = &self.instruction else {
            let given = self.outbox_id.into_iter();
            for outbox_id in given.clone() {
                if reader::outbox(client, outbox_id).await?.is_none() {
                    return Err(Failure::new(format!("there is no outbox {outbox_id} in this database"))
                        .hint("find it with: symphony inspect INSTRUCTION"));
                }
            }
            return Ok(given.collect());
        };
        let search = OutboxSearch { instruction_id: Some(instruction.clone()), ..OutboxSearch::default() };
        let (mut found, mut with_payload, mut before) = (0, Vec::new(), None);
        loop {
            let page = reader::search(client, &OutboxSearch { before, ..search.clone() }, PAGE_SIZE).await?;
            found += page.rows.len();
            let erasable = page.rows.iter().filter(|outbox| outbox.payload_erased_at.is_none());
            with_payload.extend(erasable.map(|outbox| outbox.outbox_id));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        match (found, with_payload.is_empty()) {
            (0, _) => {
                Err(Failure::new(format!("there is no payment of instruction {instruction:?} in this database"))
                    .hint("check the id, and that the database is the right one"))
            }
            (_, true) => {
                Err(Failure::new(format!("every payload of instruction {instruction:?} was erased already"))
                    .hint(format!("see when and why with: symphony inspect {instruction}")))
            }
            (_, false) => Ok(with_payload),
        }
    }
}

fn text(payments: &[Erased], dry_run: bool) -> String {
    let outboxes: Vec<_> =
        payments.iter().flat_map(|payment| &payment.outbox_ids).map(ToString::to_string).collect();
    let rows: i32 = payments.iter().map(|payment| payment.rows).sum();
    if dry_run {
        return format!(
            "would erase the payload in {rows} rows, of outbox {}; nothing was changed",
            outboxes.join(", ")
        );
    }
    let tables: BTreeSet<_> = payments.iter().flat_map(|payment| &payment.tables).map(String::as_str).collect();
    let vacuum: Vec<_> = tables.into_iter().map(|table| format!("\n  vacuum full {table};")).collect();
    format!(
        "payload erased in {rows} rows, of outbox {}\n\
         The old payload stays in dead rows until they are vacuumed, and in WAL, backups and archives until those \
         expire.\nTo remove it from the tables now, as the owner (it locks the table while it runs):{}",
        outboxes.join(", "),
        vacuum.concat()
    )
}
