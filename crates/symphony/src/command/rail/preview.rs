//! `symphony rail preview`: the request that a rail of the settings would send for a payload.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::json;
use symphony_db::payment::Payload;
use symphony_relay::rail::Payment;
use uuid::Uuid;

use crate::config::Config;
use crate::failure::{ExitStatus, Failure};
use crate::output::OutputFormat;

/// The largest payload that the database takes.
const MAX_PAYLOAD_BYTES: u64 = 256 * 1024;

#[derive(clap::Args)]
pub(super) struct Arguments {
    /// The rail, as its section in the settings is named
    name: String,
    /// Settings file
    #[arg(long, env = "SYMPHONY_CONFIG", value_name = "FILE")]
    config: PathBuf,
    /// JSON file with the payload; - reads it from stdin
    #[arg(long, value_name = "FILE")]
    payload: PathBuf,
    /// Instruction id
    #[arg(long, default_value = "preview", value_name = "ID")]
    instruction: String,
    /// Participant
    #[arg(long, default_value = "preview", value_name = "ID")]
    participant: String,
    /// Idempotency key
    #[arg(long, default_value = "preview/1", value_name = "KEY")]
    key: String,
    /// Number in the participant's sequence
    #[arg(long, default_value_t = 1, value_name = "N")]
    sequence: i64,
    #[command(flatten)]
    format: OutputFormat,
}

impl Arguments {
    pub(super) fn run(self) -> Result<ExitStatus, Failure> {
        let config = Config::load(Some(&self.config))?;
        let section = config.rails()?.into_iter().find(|section| section.name == self.name).ok_or_else(|| {
            Failure::usage(format!("the settings have no section [rails.{}]", self.name))
                .hint("see the sections with: grep '^\\[rails' FILE")
        })?;
        let rail = symphony_sinks::rail(&self.name, section.settings)?;
        let payment = Payment {
            outbox_id: Uuid::nil().into(),
            instruction_id: self.instruction,
            participant_id: self.participant,
            sequence_id: self.sequence,
            idempotency_key: self.key,
            rail_type: self.name,
            payload: read(&self.payload)?,
            attempt_count: 0,
        };
        let Some(preview) = rail.preview(&payment) else {
            return Err(Failure::new("a rail of this kind has no preview"));
        };
        let request = preview.map_err(|invalid| {
            Failure::new(format!("the payment would end as FAILED with INVALID_PAYLOAD: {invalid}"))
                .hint("correct the payload, or the section of the rail in the settings")
        })?;
        self.format.print(&json!({ "request": request }), || request.clone())?;
        Ok(ExitStatus::Success)
    }
}

/// The payload of a file. It is never quoted: it may hold personal data.
fn read(path: &Path) -> Result<Payload, Failure> {
    let mut text = String::new();
    let read = if path == Path::new("-") {
        std::io::stdin().take(MAX_PAYLOAD_BYTES + 1).read_to_string(&mut text)
    } else {
        std::fs::File::open(path).and_then(|file| file.take(MAX_PAYLOAD_BYTES + 1).read_to_string(&mut text))
    };
    read.map_err(|error| Failure::usage(format!("cannot read the payload from {}: {error}", path.display())))?;
    if text.len() as u64 > MAX_PAYLOAD_BYTES {
        return Err(Failure::usage(format!("the payload has more than {MAX_PAYLOAD_BYTES} bytes")));
    }
    serde_json::from_str(&text).map_err(|_| {
        Failure::usage(format!("{} does not hold the JSON of a payload", path.display()))
            .hint("for example: {\"amount\": \"10.00\", \"currency\": \"EUR\"}")
    })
}
