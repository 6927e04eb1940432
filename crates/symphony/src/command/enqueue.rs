//! `symphony enqueue`: enqueues one payment from the command line.

use std::{
    fs::File,
    io::{self, Read},
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use symphony_client::payment::{Instruction, tokio_postgres as producer};
use symphony_db::payment::Payload;
use symphony_relay::trace::Context;

use super::with_examples;
use crate::{
    database::Database,
    failure::{ExitStatus, Failure},
    output::OutputFormat,
};

/// The database's limit for a payload. Input beyond it is not read.
const MAX_PAYLOAD_BYTES: u64 = 256 * 1024;

/// Enqueue one payment in its own transaction, for scripts and first steps
///
/// A service enqueues in the transaction that writes its business rows instead. Enqueuing the same instruction and
/// key again is an idempotent replay: it returns the first outbox. Needs a login with the role symphony_ingest.
#[derive(clap::Args)]
#[command(after_help = with_examples(
    "  symphony enqueue --instruction pay-1 --participant acme --key pay-1 --rail sepa --payload '{\"amount\":\"12.50\"}'\n  \
     jq .payment order.json | symphony enqueue --instruction pay-2 --participant acme --key k2 --rail sepa --payload-file -",
))]
pub(crate) struct Arguments {
    /// Instruction id: your own id of the payment
    #[arg(long, value_name = "ID")]
    instruction: String,
    /// Participant id: the merchant, customer or account whose payments form one sequence
    #[arg(long, value_name = "ID")]
    participant: String,
    /// Idempotency key: the rail pays it at most once
    #[arg(long, value_name = "KEY")]
    key: String,
    /// Rail; see: symphony rail list
    #[arg(long, value_name = "NAME")]
    rail: String,
    /// Leave it unsent until this time, such as 2026-05-01T06:00:00Z; at most 366 days ahead
    #[arg(long, value_name = "TIME")]
    not_before: Option<Timestamp>,
    /// W3C trace context (traceparent) that the dispatch continues
    #[arg(long, value_name = "CONTEXT", value_parser = traceparent)]
    traceparent: Option<Context>,
    #[command(flatten)]
    payload: Source,
    #[command(flatten)]
    format: OutputFormat,
}

/// Where the payload comes from.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct Source {
    /// Payload: a JSON object
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,
    /// Read the payload from a file, or from stdin with -; at most 256 KiB
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,
}

impl Arguments {
    pub(crate) async fn run(self, database: &Database) -> Result<ExitStatus, Failure> {
        let mut instruction =
            Instruction::new(self.instruction, self.participant, self.key, self.rail, self.payload.read()?);
        instruction.not_before = self.not_before;
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
        self.format.print(&enqueued, || {
            format!(
                "outbox id  {}\nsequence   {}\nreplayed   {}\n",
                enqueued.outbox_id,
                enqueued.sequence_id,
                if enqueued.replayed { "yes: the key was enqueued before, no new outbox" } else { "no" },
            )
        })?;
        Ok(ExitStatus::Success)
    }
}

fn traceparent(text: &str) -> Result<Context, &'static str> {
    Context::parse(text).ok_or("write it as 00-<32 digits>-<16 digits>-<2 digits>, hexadecimal and in lower case")
}

impl Source {
    fn read(self) -> Result<Payload, Failure> {
        read_payload(self.payload, self.payload_file)?
            .ok_or_else(|| Failure::usage("give --payload or --payload-file"))
    }
}

/// The payload of an argument or of a file, if one is given.
pub(super) fn read_payload(text: Option<String>, file: Option<PathBuf>) -> Result<Option<Payload>, Failure> {
    let text = match (text, file) {
        (Some(text), _) => text,
        (None, Some(path)) if path.as_os_str() == "-" => bounded(io::stdin().lock(), "stdin")?,
        (None, Some(path)) => {
            let name = path.display().to_string();
            bounded(open(&path)?, &name)?
        }
        (None, None) => return Ok(None),
    };
    let payload = serde_json::from_str(&text).map_err(|error| {
        // The position, but not the text: payloads are never printed.
        Failure::usage(format!("the payload is not JSON: line {}, column {}", error.line(), error.column()))
            .hint("write a JSON object, such as '{\"amount\":\"12.50\"}'")
    })?;
    Ok(Some(payload))
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

fn bounded(source: impl Read, name: &str) -> Result<String, Failure> {
    let mut text = String::new();
    let read = source.take(MAX_PAYLOAD_BYTES + 1).read_to_string(&mut text);
    let read = read.map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    if u64::try_from(read).is_ok_and(|read| read <= MAX_PAYLOAD_BYTES) {
        return Ok(text);
    }
    Err(Failure::usage(format!("{name} holds more than {MAX_PAYLOAD_BYTES} bytes, the limit of a payload"))
        .hint("keep a large document in your own table, and its key in the payload"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_read_than_a_payload_may_have() {
        assert_eq!(bounded("{}".as_bytes(), "a file").unwrap(), "{}");
        let endless = io::repeat(b' ');
        assert!(bounded(endless, "stdin").unwrap_err().render().contains("more than 262144 bytes"));
    }

    #[test]
    fn what_is_not_json_is_refused_without_being_shown() {
        let source = Source { payload: Some("{\"iban\": DE02}".into()), payload_file: None };
        let refusal = source.read().unwrap_err().render();
        assert!(refusal.contains("column 10") && !refusal.contains("DE02"), "{refusal}");
    }
}
