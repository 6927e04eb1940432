//! `symphony dlq redrive`: one dead letter, or all that match a filter if their number is as expected.

use std::path::PathBuf;

use serde::Serialize;
use symphony_db::OutboxId;
use symphony_db::error::OperateError;
use symphony_db::payment::operator::{self, Redriven};
use symphony_db::payment::reader::{self, DeadLetterFilter};
use tokio_postgres::Client;

use super::{Filter, or_not_found};
use crate::command::enqueue::read_payload;
use crate::{
    failure::{ExitStatus, Failure},
    output::OutputFormat,
    progress, values,
};

/// Dead letters per page of a bulk redrive.
const PAGE_SIZE: i32 = 200;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// Outbox id of one dead letter; or use the filters below
    #[arg(
        value_name = "OUTBOX",
        value_parser = values::dead_letter_id,
        conflicts_with_all = ["rail", "error_code", "rail_code", "dry_run", "expect"],
    )]
    outbox_id: Option<OutboxId>,
    /// New idempotency key, for a payment that the bank refused: it answers the old key with the same refusal
    #[arg(long, value_name = "KEY", requires = "outbox_id")]
    new_key: Option<String>,
    /// New payload under the new key: a JSON object
    #[arg(long, value_name = "JSON", requires = "new_key", conflicts_with = "payload_file")]
    payload: Option<String>,
    /// Read the new payload from a file, or from stdin with -
    #[arg(long, value_name = "FILE", requires = "new_key")]
    payload_file: Option<PathBuf>,
    #[command(flatten)]
    filter: Filter,
    /// Count the matches and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Redrive the matches if there are exactly N: the number that --dry-run printed
    #[arg(long, value_name = "N", conflicts_with = "dry_run")]
    expect: Option<i64>,
    /// Your name, for the audit log
    #[arg(long, value_name = "NAME", required_unless_present = "dry_run")]
    actor: Option<String>,
    /// Why you do it, for the audit log
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,
    #[command(flatten)]
    format: OutputFormat,
}

/// The result of a dry run or of a bulk redrive.
#[derive(Serialize)]
struct BulkRedrive {
    matching: i64,
    /// Whether older dead letters were not counted.
    more: bool,
    redriven: Vec<Redriven>,
    refused: Vec<Refused>,
}

/// A dead letter that the database refused to redrive.
#[derive(Serialize)]
struct Refused {
    outbox_id: OutboxId,
    detail: String,
}

impl Arguments {
    pub(super) async fn run(self, client: &Client) -> Result<ExitStatus, Failure> {
        match self.outbox_id {
            Some(outbox_id) => self.redrive_one(client, outbox_id).await,
            None if self.dry_run || self.expect.is_some() => self.redrive_matching(client).await,
            None => Err(Failure::usage("nothing to redrive: neither OUTBOX nor --expect is given").hint(
                "count the matches with: symphony dlq redrive --rail NAME --rail-code CODE --dry-run; \
                 then give their number with: --expect N",
            )),
        }
    }

    fn audit_context(&self) -> operator::AuditContext<'_> {
        operator::AuditContext {
            actor: self.actor.as_deref().unwrap_or_default(),
            reason: self.reason.as_deref().unwrap_or_default(),
        }
    }

    async fn redrive_one(&self, client: &Client, outbox_id: OutboxId) -> Result<ExitStatus, Failure> {
        let audit = self.audit_context();
        let redriven = match &self.new_key {
            None => operator::redrive(client, outbox_id, audit).await,
            Some(key) => {
                let payload = read_payload(self.payload.clone(), self.payload_file.clone())?;
                operator::replace(client, outbox_id, key, payload.as_ref(), audit).await
            }
        };
        let redriven = or_not_found(client, outbox_id, redriven).await?;
        self.format.print(&redriven, || {
            format!("redriven as outbox {}, sequence {}", redriven.outbox_id, redriven.sequence_id)
        })?;
        Ok(ExitStatus::Success)
    }

    /// Counts the matches, and redrives them if the count is as expected. Each redrive is its own transaction.
    async fn redrive_matching(&self, client: &Client) -> Result<ExitStatus, Failure> {
        let counted = reader::count_dead_letters(client, &self.filter.of_all()).await?;
        let mut bulk =
            BulkRedrive { matching: counted.known, more: counted.more, redriven: Vec::new(), refused: Vec::new() };
        if let Some(expected) = self.expect {
            if expected != bulk.matching {
                return Err(Failure::new(format!(
                    "nothing was redriven: {} match now, not {expected}",
                    bulk.matching
                ))
                .hint("count again with --dry-run"));
            }
            self.redrive_all(client, &mut bulk).await?;
        }
        let nothing_refused = bulk.refused.is_empty();
        self.format.print(&bulk, || self.text(&bulk))?;
        Ok(if nothing_refused { ExitStatus::Success } else { ExitStatus::CheckFailed })
    }

    /// Redrives the matches, the latest first. Unknown outcomes are never among them.
    async fn redrive_all(&self, client: &Client, bulk: &mut BulkRedrive) -> Result<(), Failure> {
        let filter = DeadLetterFilter { outcome_unknown: Some(false), ..self.filter.of_all() };
        let (mut left, mut before) = (bulk.matching, None);
        while left > 0 {
            let page = reader::list_dead_letters(client, &filter, before, PAGE_SIZE).await?;
            for outbox in page.rows.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
                left -= 1;
                match operator::redrive(client, outbox.outbox_id, self.audit_context()).await {
                    Ok(redriven) => bulk.redriven.push(redriven),
                    Err(OperateError::InvalidState(report)) => {
                        bulk.refused.push(Refused { outbox_id: outbox.outbox_id, detail: report.to_string() });
                    }
                    Err(error) => {
                        progress::clear();
                        let done = bulk.redriven.len();
                        return Err(Failure::from(error).with_context(&format!("after {done} were redriven")));
                    }
                }
            }
            progress::show(&format!("{} redriven so far", bulk.redriven.len()));
            before = page.next;
            if before.is_none() {
                break;
            }
        }
        progress::clear();
        Ok(())
    }

    fn text(&self, bulk: &BulkRedrive) -> String {
        if self.dry_run {
            let among = if bulk.more { " among the latest 5,000 dead letters" } else { "" };
            if bulk.matching == 0 {
                return format!("0 match{among}");
            }
            return format!(
                "{} match{among}; nothing was changed. Redrive them with --expect {}",
                bulk.matching, bulk.matching
            );
        }
        let mut text = format!("{} redriven", bulk.redriven.len());
        for Refused { outbox_id, detail } in &bulk.refused {
            text.push_str(&format!("\noutbox {outbox_id} was not redriven: {detail}"));
        }
        text
    }
}
