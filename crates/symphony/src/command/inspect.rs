//! `symphony inspect`: the whole story of an instruction, over all of its outboxes.

mod timeline;

use std::collections::BTreeSet;

use serde::Serialize;
use symphony_outbox::{
    OutboxId,
    payment::reading::{self, Event, Operation, Pending},
};
pub(super) use timeline::text;
use tokio_postgres::Client;

use super::with_examples;
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::Form,
};

/// Tell the whole story of an instruction: every attempt, and what people did
///
/// Over all of its outboxes, in order, in UTC. A payload is never shown. Needs a login with one of the roles
/// symphony_readonly, symphony_auditor and symphony_operator.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony inspect pay-1\n  symphony inspect 0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f --json",
))]
pub(crate) struct Arguments {
    /// An outbox id or an instruction id
    #[arg(value_name = "ID")]
    id: String,
    #[command(flatten)]
    form: Form,
}

/// What is known of one instruction.
#[derive(Serialize)]
pub(super) struct Story {
    pub(super) instruction_id: String,
    pub(super) events: Vec<Event>,
    pub(super) operations: Vec<Operation>,
    /// What its outboxes are doing now that have not ended.
    pub(super) pending: Vec<Pending>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let client = database.connect().await?;
        let story = read(&client, &self.id).await?.ok_or_else(|| {
            Failure::no(format!(
                "there is no outbox and no instruction with the id {:?} in this database",
                self.id
            ))
        })?;
        self.form.print(&story, || text(&story))?;
        Ok(Answer::Yes)
    }
}

/// The story of whatever has this id.
pub(super) async fn read(client: &Client, id: &str) -> Result<Option<Story>, Failure> {
    // An instruction may be named by a UUID as well, so an id that is no outbox is tried as that.
    let of_outbox = match id.parse::<OutboxId>() {
        Ok(outbox_id) => reading::story(client, outbox_id).await?,
        Err(_) => Vec::new(),
    };
    let instruction_id = of_outbox.first().map_or(id, |event| event.instruction_id.as_str()).to_owned();
    let events = reading::story_of_instruction(client, &instruction_id).await?;
    if events.is_empty() {
        return Ok(None);
    }
    let (mut operations, mut pending) = (Vec::new(), Vec::new());
    for outbox_id in events.iter().map(|event| event.outbox_id).collect::<BTreeSet<_>>() {
        // A redrive belongs to two outboxes and is told once, with the one that it was done to.
        let done = reading::operations(client, outbox_id).await?;
        operations.extend(done.into_iter().filter(|operation| operation.outbox_id == Some(outbox_id)));
        pending.extend(reading::pending(client, outbox_id).await?);
    }
    Ok(Some(Story { instruction_id, events, operations, pending }))
}
