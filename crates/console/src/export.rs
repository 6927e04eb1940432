//! The audit export: records as CSV or NDJSON, the same from the API and from `symphony audit`.
//!
//! It reads the audit log one page at a time, so that memory use does not grow with the length of the log.

use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use symphony_db::OutboxId;
use symphony_db::error::DatabaseError;
use symphony_db::payment::reader::{self, Operation, Outbox, TimelineEvent};
use tokio_postgres::Client;

use crate::sanitize::{json_for_terminal, plain_layout};

/// How many operations one statement reads.
const PAGE_SIZE: i32 = 500;

/// The file format of an export.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum Format {
    /// For spreadsheets: a header, then one line per record. A field that a spreadsheet would run as a formula gets a '
    /// in front; control characters and bidirectional overrides become U+FFFD.
    #[default]
    Csv,
    /// For programs: one JSON object per line, exactly as stored.
    Ndjson,
}

/// Why records could not be written in a format.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A field could not be written as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// A record could not be written as CSV.
    #[error(transparent)]
    Csv(#[from] csv::Error),
}

/// A kind of record that can be exported. NDJSON serializes the record itself; CSV its [`Self::CsvRow`].
pub trait ExportRecord: Serialize {
    /// The record as a row of text fields, in the order of the columns. serde names the columns after its fields.
    type CsvRow: Default + Serialize;

    /// Converts the record to its row.
    ///
    /// # Errors
    ///
    /// If a field cannot be written as JSON.
    fn csv_row(&self) -> Result<Self::CsvRow, Error>;
}

/// Declares the CSV row of a record. The record is destructured without `..`, so a field that is not listed here fails
/// to compile.
macro_rules! csv_row {
    ($visibility:vis $record:ident => $row:ident { $($field:ident),* $(,)? }) => {
        #[doc = concat!("The columns of [`", stringify!($record), "`].")]
        #[derive(Debug, Default, Serialize)]
        $visibility struct $row { $($field: CsvField),* }

        impl ExportRecord for $record {
            type CsvRow = $row;

            fn csv_row(&self) -> Result<$row, Error> {
                let Self { $($field),* } = self;
                Ok($row { $($field: CsvField::new($field)?),* })
            }
        }
    };
}

/// One CSV field that neither a spreadsheet nor a terminal interprets.
#[derive(Debug, Default, Serialize)]
#[serde(transparent)]
struct CsvField(String);

impl CsvField {
    fn new(value: &impl Serialize) -> Result<Self, Error> {
        let text = match serde_json::to_value(value)? {
            Value::Null => String::new(),
            Value::String(text) if text.starts_with(['=', '+', '-', '@', '\t', '\r']) => format!("'{text}"),
            Value::String(text) => text,
            other => other.to_string(),
        };
        Ok(Self(plain_layout(&text)))
    }
}

impl Format {
    /// The media type of a file.
    pub fn media(self) -> &'static str {
        match self {
            Self::Csv => "text/csv; charset=utf-8; header=present",
            Self::Ndjson => "application/x-ndjson",
        }
    }

    /// The extension of a file name.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Csv => "csv",
            Self::Ndjson => "ndjson",
        }
    }

    /// What precedes the first record: the CSV header, which serde derives from the fields of the row.
    ///
    /// # Errors
    ///
    /// If the header cannot be written.
    pub fn header<R: ExportRecord>(self) -> Result<String, Error> {
        match self {
            Self::Csv => {
                let with_empty_row = csv_text(&[R::CsvRow::default()], true)?;
                Ok(with_empty_row.split_inclusive("\r\n").next().unwrap_or_default().to_owned())
            }
            Self::Ndjson => Ok(String::new()),
        }
    }

    /// These records, one per line.
    ///
    /// # Errors
    ///
    /// If a record cannot be written.
    pub fn lines<R: ExportRecord>(self, records: &[R]) -> Result<String, Error> {
        match self {
            Self::Csv => csv_text(&records.iter().map(R::csv_row).collect::<Result<Vec<_>, _>>()?, false),
            Self::Ndjson => {
                let mut text = String::new();
                for record in records {
                    text.push_str(&json_for_terminal(&serde_json::to_string(record)?));
                    text.push('\n');
                }
                Ok(text)
            }
        }
    }
}

/// Rows as RFC 4180 defines them.
fn csv_text(rows: &[impl Serialize], has_header: bool) -> Result<String, Error> {
    let mut bytes = Vec::new();
    let mut writer = csv::WriterBuilder::new()
        .has_headers(has_header)
        .terminator(csv::Terminator::CRLF)
        .from_writer(&mut bytes);
    for row in rows {
        writer.serialize(row)?;
    }
    writer.flush().map_err(csv::Error::from)?;
    drop(writer);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

csv_row! {
    pub Operation => OperationRow {
        created_at,
        operation_id,
        operation,
        rail_type,
        outbox_id,
        new_outbox_id,
        resolution,
        actor,
        database_user,
        reason,
        policy_before,
        policy_after,
    }
}

/// A half-open period: `from <= t < to`.
#[derive(Clone, Copy, Debug)]
pub struct Range {
    /// The first moment of the period.
    pub from: Timestamp,
    /// The first moment after the period.
    pub to: Timestamp,
}

impl Range {
    /// The part of the period in which every transaction has ended: the next export starts at its `to`. None if the
    /// period has not begun.
    pub async fn complete(self, client: &Client, wait: Duration) -> Result<Option<Self>, DatabaseError> {
        let to = reader::audit_export_end(client, self.to, wait).await?;
        Ok((self.from < to).then_some(Self { to, ..self }))
    }
}

/// A cursor over the operations of a period, in order.
#[derive(Debug)]
pub struct Operations {
    range: Range,
    after: Option<(Timestamp, uuid::Uuid)>,
    done: bool,
}

impl Operations {
    /// A cursor before the first operation of this period.
    pub fn of(range: Range) -> Self {
        Self { range, after: None, done: false }
    }

    /// The next page; empty at the end.
    pub async fn next(&mut self, client: &Client) -> Result<Vec<Operation>, DatabaseError> {
        if self.done {
            return Ok(Vec::new());
        }
        let Range { from, to } = self.range;
        let page = reader::operations_between(client, from, to, self.after, PAGE_SIZE).await?;
        self.done = i32::try_from(page.len()).is_ok_and(|count| count < PAGE_SIZE);
        self.after = page.last().map(|last| (last.created_at, last.operation_id)).or(self.after);
        Ok(page)
    }
}

/// One record of an outbox's timeline: an event of the outbox, or an operator's action on it.
#[derive(Debug, Serialize)]
pub struct TimelineRecord {
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
    endpoint: Option<String>,
    related_outbox_id: Option<OutboxId>,
    operation_id: Option<uuid::Uuid>,
    resolution: Option<String>,
    actor: Option<String>,
    database_user: Option<String>,
    reason: Option<String>,
}

csv_row! {
    pub TimelineRecord => TimelineRow {
        at,
        outbox_id,
        instruction_id,
        participant_id,
        sequence_id,
        idempotency_key,
        rail_type,
        what,
        attempt_no,
        state,
        worker_id,
        rail_reference,
        rail_code,
        error_code,
        error_message,
        latency_ms,
        endpoint,
        related_outbox_id,
        operation_id,
        resolution,
        actor,
        database_user,
        reason,
    }
}

impl TimelineRecord {
    fn new(outbox: &Outbox, at: Timestamp, what: String) -> Self {
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
            endpoint: None,
            related_outbox_id: None,
            operation_id: None,
            resolution: None,
            actor: None,
            database_user: None,
            reason: None,
        }
    }

    fn from_event(outbox: &Outbox, event: TimelineEvent) -> Self {
        Self {
            attempt_no: event.attempt_no,
            state: event.state.map(|state| state.to_string()),
            worker_id: event.worker_id,
            rail_reference: event.rail_reference,
            rail_code: event.rail_code,
            error_code: event.error_code,
            error_message: event.error_message,
            latency_ms: event.latency_ms,
            endpoint: event.endpoint,
            related_outbox_id: event.related_outbox_id,
            database_user: event.database_user,
            ..Self::new(outbox, event.occurred_at, event.event.to_string())
        }
    }

    fn from_operation(outbox: &Outbox, operation: Operation) -> Self {
        Self {
            // A redrive belongs to two outboxes: this field names the other one.
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
            ..Self::new(outbox, operation.created_at, operation.operation.to_string())
        }
    }
}

/// The timeline of one outbox, oldest first; none if the outbox does not exist.
pub async fn timeline(client: &Client, id: OutboxId) -> Result<Option<Vec<TimelineRecord>>, DatabaseError> {
    let Some(outbox) = reader::outbox(client, id).await? else { return Ok(None) };
    let events = reader::timeline(client, id).await?.into_iter();
    let operations = reader::operations(client, id).await?.into_iter();
    let mut records: Vec<_> = events.map(|event| TimelineRecord::from_event(&outbox, event)).collect();
    records.extend(operations.map(|operation| TimelineRecord::from_operation(&outbox, operation)));
    records.sort_by_key(|record| record.at);
    Ok(Some(records))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;
    use symphony_db::payment::OperationKind;

    use super::*;

    #[derive(Serialize)]
    struct Sample {
        who: &'static str,
        count: Option<i64>,
        policy: Value,
    }

    csv_row! { Sample => SampleRow { who, count, policy } }

    #[test]
    fn a_line_is_read_back_by_spreadsheets_and_never_run_by_them() {
        let records = [
            Sample { who: "=HYPERLINK(\"http://evil\")", count: Some(-3), policy: json!({ "paused": true }) },
            Sample { who: "ana, \"duty\"\nnight", count: None, policy: Value::Null },
            Sample { who: "bo", count: Some(7), policy: Value::Null },
            Sample { who: "\tx\u{202e} # y", count: None, policy: json!([-1]) },
        ];
        let text = Format::Csv.header::<Sample>().unwrap() + &Format::Csv.lines(&records).unwrap();
        assert_eq!(
            text,
            "who,count,policy\r\n\"'=HYPERLINK(\"\"http://evil\"\")\",-3,\"{\"\"paused\"\":true}\"\r\n\
             \"ana, \"\"duty\"\"\nnight\",,\r\nbo,7,\r\n'\tx\u{fffd} # y,,[-1]\r\n"
        );
        let text = Format::Ndjson.header::<Sample>().unwrap() + &Format::Ndjson.lines(&records[..1]).unwrap();
        let read: Value = serde_json::from_str(text.trim_end()).unwrap();
        assert_eq!((text.matches('\n').count(), &read["who"]), (1, &json!("=HYPERLINK(\"http://evil\")")));
    }

    /// The columns of the CSV header, and the keys of the same record as NDJSON.
    fn columns_and_keys<R: ExportRecord>(record: R) -> (BTreeSet<String>, BTreeSet<String>) {
        let header = Format::Csv.header::<R>().unwrap();
        let object: serde_json::Map<String, Value> =
            serde_json::from_str(&Format::Ndjson.lines(&[record]).unwrap()).unwrap();
        (
            header.trim_end().split(',').map(str::to_owned).collect(),
            object.into_iter().map(|(key, _)| key).collect(),
        )
    }

    #[test]
    fn the_csv_header_has_every_field_of_the_ndjson_form() {
        let operation = Operation {
            operation_id: uuid::Uuid::nil(),
            operation: OperationKind::Redrive,
            outbox_id: None,
            new_outbox_id: None,
            resolution: None,
            rail_type: Some("sepa".to_owned()),
            policy_before: None,
            policy_after: Some(json!({ "paused": true })),
            actor: "ana".to_owned(),
            reason: "a test".to_owned(),
            database_user: "console_act".to_owned(),
            created_at: Timestamp::UNIX_EPOCH,
        };
        let (columns, keys) = columns_and_keys(operation);
        assert_eq!(columns, keys);
    }
}
