//! `symphony dlq redrive`: one failure, or all that fit once somebody has seen how many.

use serde::Serialize;
use symphony_outbox::OutboxId;
use symphony_outbox::error::OperateError;
use symphony_outbox::payment::operator::{self, Redriven};
use symphony_outbox::payment::reading::{self, DeadLetterFilter};
use tokio_postgres::Client;

use super::known;
use crate::{
    failure::{Answer, Failure},
    output::Form,
    progress,
};

/// How many are listed at a time.
const PAGE: i32 = 200;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The outbox that failed; or say by the options below which ones
    #[arg(value_name = "OUTBOX", conflicts_with_all = ["rail", "error_code", "dry_run", "expect"])]
    outbox_id: Option<OutboxId>,
    /// All known failures of this rail
    #[arg(long, value_name = "NAME")]
    rail: Option<String>,
    /// All known failures with this error code
    #[arg(long, value_name = "CODE")]
    error_code: Option<String>,
    /// Count how many fit, and do nothing
    #[arg(long)]
    dry_run: bool,
    /// Redrive those that fit if they are so many: the number that --dry-run counted
    #[arg(long, value_name = "N", conflicts_with = "dry_run")]
    expect: Option<i64>,
    /// Who does it
    #[arg(long, value_name = "NAME", required_unless_present = "dry_run")]
    actor: Option<String>,
    /// Why
    #[arg(long, value_name = "TEXT", required_unless_present = "dry_run")]
    reason: Option<String>,
    #[command(flatten)]
    form: Form,
}

/// What a dry run counted, or what was done.
#[derive(Serialize)]
struct Many {
    matching: i64,
    /// Whether there are older failures that were not looked at.
    more: bool,
    redriven: Vec<Redriven>,
    refused: Vec<Refused>,
}

/// One that was not redriven.
#[derive(Serialize)]
struct Refused {
    outbox_id: OutboxId,
    detail: String,
}

impl Arguments {
    pub(super) async fn run(self, client: &Client) -> Result<Answer, Failure> {
        match self.outbox_id {
            Some(outbox_id) => self.one(client, outbox_id).await,
            None if self.dry_run || self.expect.is_some() => self.many(client).await,
            None => Err(Failure::usage("which failures? name an OUTBOX, or those that fit by their number").hint(
                "count them with: symphony dlq redrive --rail NAME --error-code CODE --dry-run; \
                 then give the number with: --expect N",
            )),
        }
    }

    fn warrant(&self) -> operator::Warrant<'_> {
        operator::Warrant {
            actor: self.actor.as_deref().unwrap_or_default(),
            reason: self.reason.as_deref().unwrap_or_default(),
        }
    }

    async fn one(&self, client: &Client, outbox_id: OutboxId) -> Result<Answer, Failure> {
        let redriven = operator::redrive(client, outbox_id, self.warrant()).await;
        let redriven = known(client, outbox_id, redriven).await?;
        self.form.print(&redriven, || {
            format!("redriven as outbox {}, sequence {}", redriven.outbox_id, redriven.sequence_id)
        })?;
        Ok(Answer::Yes)
    }

    /// Counts, and does it where the count is as expected. Each failure is a transaction of its own.
    async fn many(&self, client: &Client) -> Result<Answer, Failure> {
        let counted =
            reading::count_dead_letters(client, self.rail.as_deref(), self.error_code.as_deref()).await?;
        let mut many =
            Many { matching: counted.known, more: counted.more, redriven: Vec::new(), refused: Vec::new() };
        if let Some(expected) = self.expect {
            if expected != many.matching {
                return Err(Failure::no(format!(
                    "{} fit now, not {expected}: nothing was redriven",
                    many.matching
                ))
                .hint("look again with --dry-run before you act"));
            }
            self.redrive_all(client, &mut many).await?;
        }
        let nothing_refused = many.refused.is_empty();
        self.form.print(&many, || self.text(&many))?;
        Ok(if nothing_refused { Answer::Yes } else { Answer::No })
    }

    /// Those that fit, the latest first. What nobody knows is never among them.
    async fn redrive_all(&self, client: &Client, many: &mut Many) -> Result<(), Failure> {
        let filter = DeadLetterFilter {
            outcome_unknown: Some(false),
            rail_type: self.rail.clone(),
            error_code: self.error_code.clone(),
        };
        let (mut left, mut before) = (many.matching, None);
        while left > 0 {
            let page = reading::page_of_dead_letters(client, &filter, before, PAGE).await?;
            for outbox in page.outboxes.iter().take(usize::try_from(left).unwrap_or(usize::MAX)) {
                left -= 1;
                match operator::redrive(client, outbox.outbox_id, self.warrant()).await {
                    Ok(redriven) => many.redriven.push(redriven),
                    Err(OperateError::InvalidState(report)) => {
                        many.refused.push(Refused { outbox_id: outbox.outbox_id, detail: report.to_string() });
                    }
                    Err(error) => {
                        progress::done();
                        let done = many.redriven.len();
                        return Err(Failure::from(error).within(&format!("after {done} were redriven")));
                    }
                }
            }
            progress::say(&format!("{} redriven so far", many.redriven.len()));
            before = page.next_before;
            if before.is_none() {
                break;
            }
        }
        progress::done();
        Ok(())
    }

    fn text(&self, many: &Many) -> String {
        if self.dry_run {
            let among = if many.more { ", among the latest 5,000 failures" } else { "" };
            return format!(
                "{} fit{among}; nothing was done. Redrive them with --expect {}",
                many.matching, many.matching
            );
        }
        let mut text = format!("{} redriven", many.redriven.len());
        for Refused { outbox_id, detail } in &many.refused {
            text.push_str(&format!("\noutbox {outbox_id} was not: {detail}"));
        }
        text
    }
}
