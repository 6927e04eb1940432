//! `symphony enqueue`: enqueues one instruction, in a transaction of its own.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use symphony_outbox::payment::{Instruction, Payload, producer};
use symphony_relay::trace::Context;

use super::with_examples;
use crate::{
    database::Database,
    failure::{Answer, Failure},
    output::Form,
};

/// As much as the database takes; more is not even read.
const LIMIT: u64 = 256 * 1024;

/// Enqueue one payment instruction, in a transaction of its own
///
/// For trying things out and for scripts: a service enqueues in the transaction that writes its business rows. The
/// same instruction and key give the same outbox again. Needs a login with the role symphony_ingest.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony enqueue --instruction pay-1 --participant acme --key pay-1 --rail sepa --payload '{\"amount\":\"12.50\"}'\n  \
     jq .payment order.json | symphony enqueue --instruction pay-2 --participant acme --key k2 --rail sepa --payload-file -",
))]
pub(crate) struct Arguments {
    /// The order to pay, by your own name for it
    #[arg(long, value_name = "ID")]
    instruction: String,
    /// The party whose instructions are sequenced
    #[arg(long, value_name = "ID")]
    participant: String,
    /// The idempotency key: the name under which the rail must not pay twice
    #[arg(long, value_name = "KEY")]
    key: String,
    /// The rail that carries it; see: symphony rail list
    #[arg(long, value_name = "NAME")]
    rail: String,
    /// The W3C trace context of who asks for it, which the dispatch goes on with where the relayer draws spans
    #[arg(long, value_name = "CONTEXT", value_parser = traceparent)]
    traceparent: Option<Context>,
    #[command(flatten)]
    payload: Source,
    #[command(flatten)]
    form: Form,
}

/// Where the payload comes from.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// What the rail is given: a JSON object
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// The same from a file, or from stdin with -; at most 256 KiB
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<Answer, Failure> {
        let instruction = Instruction {
            instruction_id: self.instruction,
            participant_id: self.participant,
            idempotency_key: self.key,
            rail_type: self.rail,
            payload: self.payload.read()?,
        };
        let mut client = database.connect().await?;
        let enqueued = match self.traceparent {
            None => producer::enqueue(&client, &instruction).await?,
            Some(context) => {
                let transaction = client.transaction().await?;
                producer::set_traceparent(&transaction, &context.to_string()).await?;
                let enqueued = producer::enqueue(&transaction, &instruction).await?;
                transaction.commit().await?;
                enqueued
            }
        };
        self.form.print(&enqueued, || {
            format!(
                "outbox id  {}\nsequence   {}\nreplayed   {}\n",
                enqueued.outbox_id,
                enqueued.sequence_id,
                if enqueued.replayed { "yes: the key was known already, nothing new was made" } else { "no" },
            )
        })?;
        Ok(Answer::Yes)
    }
}

fn traceparent(text: &str) -> Result<Context, &'static str> {
    Context::parse(text).ok_or("write it as 00-<32 digits>-<16 digits>-<2 digits>, hexadecimal and in lower case")
}

impl Source {
    fn read(self) -> Result<Payload, Failure> {
        let text = match (self.payload, self.payload_file) {
            (Some(text), _) => text,
            (None, Some(path)) if path.as_os_str() == "-" => bounded(io::stdin().lock(), "stdin")?,
            (None, Some(path)) => {
                let name = path.display().to_string();
                bounded(open(&path)?, &name)?
            }
            (None, None) => return Err(Failure::usage("give --payload or --payload-file")),
        };
        serde_json::from_str(&text).map_err(|error| {
            // Where, but not what: a payload is nobody's to see.
            Failure::usage(format!("the payload is not JSON: line {}, column {}", error.line(), error.column()))
                .hint("it is a JSON object, such as '{\"amount\":\"12.50\"}'")
        })
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

fn bounded(source: impl Read, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = source.take(LIMIT + 1).read_to_string(&mut text);
    let read = read.map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    if u64::try_from(read).is_ok_and(|read| read <= LIMIT) {
        return Ok(text);
    }
    Err(Failure::usage(format!("{name} holds more than {LIMIT} bytes, which is all that a payload may have"))
        .hint("keep a large document in a table of your own, and its key in the payload"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_a_payload_may_have() {
        assert_eq!(bounded("{}".as_bytes(), "a file").unwrap(), "{}");
        let endless = io::repeat(b' ');
        assert!(bounded(endless, "stdin").unwrap_err().in_full().contains("more than 262144 bytes"));
    }

    #[test]
    fn what_is_not_json_is_refused_without_being_shown() {
        let source = Source { payload: Some("{\"iban\": DE02}".into()), payload_file: None };
        let refusal = source.read().unwrap_err().in_full();
        assert!(refusal.contains("column 10") && !refusal.contains("DE02"), "{refusal}");
    }
}
