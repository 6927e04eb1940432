//! What auditors take away: records as CSV or as a JSON object a line, the same from the API and from the command line.
//!
//! Knows how a record is written, and where records come from: a page of the log at a time, so that no length of it is held in memory.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use symphony_outbox::OutboxId;
use symphony_outbox::error::Fault;
use symphony_outbox::payment::reading::{self, Event, Operation, Outbox};
use tokio_postgres::Client;

use crate::output::{json_for_terminal, plain_layout};

/// How many records are read at a time.
const CHUNK: i32 = 500;

/// How records are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Format {
    /// For spreadsheets: a heading, then a line for each record. A cell that would be taken for a formula has a ' before it,
    /// and characters that would steer a terminal or reorder a line are U+FFFD.
    #[default]
    Csv,
    /// For programs: a JSON object a line, exactly as it is kept.
    Ndjson,
}

/// A kind of record.
pub(crate) trait Record: Serialize {
    /// Its fields, in the order of the columns.
    const FIELDS: &'static [&'static str];
}

impl Format {
    /// How it is called where files are sent.
    pub(crate) fn media(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Ndjson => "application/x-ndjson",
        }
    }

    /// What a file in it is called by.
    pub(crate) fn ending(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
        }
    }

    /// What stands before the first record.
    pub(crate) fn heading<R: Record>(self) -> String {
        match self {
            Self::Csv => format!("{}\r\n", R::FIELDS.join(",")),
            Self::Ndjson => String::new(),
        }
    }

    /// These records, each with its line end.
    pub(crate) fn lines<R: Record>(self, records: &[R]) -> Result<String, serde_json::Error> {
        let mut text = String::new();
        for record in records {
            match self {
                Self::Csv => {
                    let record = serde_json::to_value(record)?;
                    let cells: Vec<_> = R::FIELDS.iter().map(|field| cell(&record[*field])).collect();
                    text.push_str(&cells.join(","));
                    text.push_str("\r\n");
                }
                Self::Ndjson => {
                    text.push_str(&json_for_terminal(&serde_json::to_string(record)?));
                    text.push('\n');
                }
            }
        }
        Ok(text)
    }
}

/// A cell as RFC 4180 has it. Text of people that a spreadsheet would run is made text again.
fn cell(value: &Value) -> String {
    let text = match value {
        Value::Null => String::new(),
        Value::String(text) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => format!("'{text}"),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let text = plain_layout(&text);
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text }
}

impl Record for Operation {
    const FIELDS: &'static [&'static str] = &[
        "created_at",
        "operation_id",
        "operation",
        "rail_type",
        "outbox_id",
        "new_outbox_id",
        "resolution",
        "actor",
        "database_user",
        "reason",
        "policy_before",
        "policy_after",
    ];
}

/// A time during which things were done: from a moment, and before another.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
}

impl Range {
    /// The part of it whose records are all committed: the next export starts where this one ends. None where it has not begun.
    pub(crate) async fn complete(self, client: &Client, wait: Duration) -> Result<Option<Self>, Fault> {
        let to = reading::audit_export_end(client, self.to, wait).await?;
        Ok((self.from < to).then_some(Self { to, ..self }))
    }
}

/// The operations of a time, in order, a chunk at a time.
#[derive(Debug)]
pub(crate) struct Operations {
    range: Range,
    after: Option<(Timestamp, uuid::Uuid)>,
    done: bool,
}

impl Operations {
    pub(crate) fn of(range: Range) -> Self {
        Self { range, after: None, done: false }
    }

    /// The next of them; empty once there are no more.
    pub(crate) async fn next(&mut self, client: &Client) -> Result<Vec<Operation>, Fault> {
        if self.done {
            return Ok(Vec::new());
        }
        let Range { from, to } = self.range;
        let chunk = reading::operations_between(client, from, to, self.after, CHUNK).await?;
        self.done = i32::try_from(chunk.len()).is_ok_and(|count| count < CHUNK);
        self.after = chunk.last().map(|last| (last.created_at, last.operation_id)).or(self.after);
        Ok(chunk)
    }
}

/// Something in the story of an outbox: it happened to it, or a person did it.
#[derive(Debug, Serialize)]
pub(crate) struct Line {
    at: Timestamp,
    outbox_id: OutboxId,
    instruction_id: String,
    participant_id: String,
    sequence_id: i64,
    idempotency_key: String,
    rail_type: String,
    what: String,
    attempt_no: Option<i32>,
    state: Option<String>,
    worker_id: Option<String>,
    rail_reference: Option<String>,
    rail_code: Option<String>,
    error_code: Option<String>,
    error_message: Option<String>,
    latency_ms: Option<i32>,
    related_outbox_id: Option<OutboxId>,
    operation_id: Option<uuid::Uuid>,
    resolution: Option<String>,
    actor: Option<String>,
    database_user: Option<String>,
    reason: Option<String>,
}

impl Record for Line {
    const FIELDS: &'static [&'static str] = &[
        "at",
        "outbox_id",
        "instruction_id",
        "participant_id",
        "sequence_id",
        "idempotency_key",
        "rail_type",
        "what",
        "attempt_no",
        "state",
        "worker_id",
        "rail_reference",
        "rail_code",
        "error_code",
        "error_message",
        "latency_ms",
        "related_outbox_id",
        "operation_id",
        "resolution",
        "actor",
        "database_user",
        "reason",
    ];
}

impl Line {
    fn about(outbox: &Outbox, at: Timestamp, what: String) -> Self {
        Self {
            at,
            outbox_id: outbox.outbox_id,
            instruction_id: outbox.instruction_id.clone(),
            participant_id: outbox.participant_id.clone(),
            sequence_id: outbox.sequence_id,
            idempotency_key: outbox.idempotency_key.clone(),
            rail_type: outbox.rail_type.clone(),
            what,
            attempt_no: None,
            state: None,
            worker_id: None,
            rail_reference: None,
            rail_code: None,
            error_code: None,
            error_message: None,
            latency_ms: None,
            related_outbox_id: None,
            operation_id: None,
            resolution: None,
            actor: None,
            database_user: None,
            reason: None,
        }
    }

    fn happened(outbox: &Outbox, event: Event) -> Self {
        Self {
            attempt_no: event.attempt_no,
            state: event.state.map(|state| state.to_string()),
            worker_id: event.worker_id,
            rail_reference: event.rail_reference,
            rail_code: event.rail_code,
            error_code: event.error_code,
            error_message: event.error_message,
            latency_ms: event.latency_ms,
            related_outbox_id: event.related_outbox_id,
            database_user: event.database_user,
            ..Self::about(outbox, event.occurred_at, event.event.to_string())
        }
    }

    fn done(outbox: &Outbox, operation: Operation) -> Self {
        Self {
            // A redrive belongs to two outboxes: the other one is told.
            related_outbox_id: if operation.outbox_id == Some(outbox.outbox_id) {
                operation.new_outbox_id
            } else {
                operation.outbox_id
            },
            operation_id: Some(operation.operation_id),
            resolution: operation.resolution.map(|resolution| resolution.to_string()),
            actor: Some(operation.actor),
            database_user: Some(operation.database_user),
            reason: Some(operation.reason),
            ..Self::about(outbox, operation.created_at, operation.operation.to_string())
        }
    }
}

/// The whole story of one outbox in the order of time; none where there is no such outbox.
pub(crate) async fn story(client: &Client, id: OutboxId) -> Result<Option<Vec<Line>>, Fault> {
    let Some(outbox) = reading::outbox(client, id).await? else { return Ok(None) };
    let events = reading::story(client, id).await?.into_iter();
    let operations = reading::operations(client, id).await?.into_iter();
    let mut lines: Vec<_> = events.map(|event| Line::happened(&outbox, event)).collect();
    lines.extend(operations.map(|operation| Line::done(&outbox, operation)));
    lines.sort_by_key(|line| line.at);
    Ok(Some(lines))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[derive(Serialize)]
    struct Said {
        who: &'static str,
        count: Option<i64>,
        policy: Value,
    }

    impl Record for Said {
        const FIELDS: &'static [&'static str] = &["who", "count", "policy"];
    }

    #[test]
    fn a_line_is_read_back_by_spreadsheets_and_never_run_by_them() {
        let records = [
            Said { who: "=HYPERLINK(\"http://evil\")", count: Some(-3), policy: json!({ "paused": true }) },
            Said { who: "ana, \"duty\"\nnight", count: None, policy: Value::Null },
            Said { who: "bo", count: Some(7), policy: Value::Null },
        ];
        let text = Format::Csv.heading::<Said>() + &Format::Csv.lines(&records).unwrap();
        assert_eq!(
            text,
            "who,count,policy\r\n\"'=HYPERLINK(\"\"http://evil\"\")\",-3,\"{\"\"paused\"\":true}\"\r\n\
             \"ana, \"\"duty\"\"\nnight\",,\r\nbo,7,\r\n"
        );
        let text = Format::Ndjson.heading::<Said>() + &Format::Ndjson.lines(&records[..1]).unwrap();
        let read: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!((text.matches('\n').count(), &read["who"]), (1, &json!("=HYPERLINK(\"http://evil\")")));
    }

    #[test]
    fn every_field_of_a_record_has_its_column() {
        let operation: Value = json!({
            "operation_id": 1, "operation": 1, "outbox_id": 1, "new_outbox_id": 1, "resolution": 1, "rail_type": 1, "policy_before": 1,
            "policy_after": 1, "actor": 1, "reason": 1, "database_user": 1, "created_at": 1
        });
        assert_eq!(operation.as_object().unwrap().len(), Operation::FIELDS.len());
        assert!(Operation::FIELDS.iter().all(|field| !operation[*field].is_null()));
    }
}
