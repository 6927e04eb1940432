//! The audit export as a file: the audit log of a period, and the timeline of one outbox.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use symphony_db::OutboxId;
use symphony_db::payment::reader::{self, Operation};

use crate::access::{Caller, Scope};
use crate::endpoint::Endpoint;
use crate::export::{self, ExportRecord, Format, Operations, Range};
use crate::extract::{PathId, QueryParams};
use crate::problem::Problem;
use crate::quota::Permit;
use crate::{Console, ConsoleState};

/// The most operations of one export.
const MAX_OPERATIONS: i64 = 100_000;
/// Concurrent exports of all callers.
pub(crate) const MAX_EXPORTS: usize = 2;
/// Concurrent exports of one token.
pub(crate) const MAX_EXPORTS_PER_TOKEN: usize = 1;
/// How long an export waits for open transactions: less than the statement timeout of the console.
const OPEN_TRANSACTION_TIMEOUT: Duration = Duration::from_millis(1500);
/// The header with the end of the exported period, where the next export starts.
const EXPORT_END_HEADER: &str = "symphony-export-end";
/// How long an export may take. A client that reads more slowly is cut off.
const EXPORT_TIMEOUT: Duration = Duration::from_mins(10);
const MEDIA_TYPES: &[&str] = &["text/csv", "application/x-ndjson"];

/// The period and the format of an export.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OperationsExport {
    /// Operations at this time or later.
    from: Timestamp,
    /// Operations before this time.
    to: Timestamp,
    /// csv, or ndjson for one JSON object per line; csv if left out.
    #[serde(default)]
    format: Format,
}

/// The format of an export.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ExportFormat {
    /// csv, or ndjson for one JSON object per line; csv if left out.
    #[serde(default)]
    pub(crate) format: Format,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<OperationsExport, String, _>(
            "/audit/operations",
            Scope::Audit,
            "The audit log of a period as a file, oldest first: complete, or refused if it has more than 100,000 operations. The export ends at `to`, or now if \
             `to` is later: the header symphony-export-end says where, and the next export starts there. Refused with 503 while a transaction that has \
             written stays open.",
            operations,
        )
        .with_media(MEDIA_TYPES),
        Endpoint::get::<ExportFormat, String, _>(
            "/audit/outboxes/{outbox_id}",
            Scope::Audit,
            "The timeline of one outbox as a file, without its payload.",
            one,
        )
        .with_media(MEDIA_TYPES),
    ]
}

async fn operations(
    State(console): State<ConsoleState>,
    caller: Caller,
    QueryParams(export): QueryParams<OperationsExport>,
) -> Result<Response, Problem> {
    export.run(&console, &caller).await
}

async fn one(
    State(console): State<ConsoleState>,
    PathId(id): PathId<OutboxId>,
    QueryParams(ExportFormat { format }): QueryParams<ExportFormat>,
) -> Result<Response, Problem> {
    timeline_file(&console, id, format).await
}

/// The timeline of one outbox as a file.
pub(crate) async fn timeline_file(console: &Console, id: OutboxId, format: Format) -> Result<Response, Problem> {
    let timeline = console.database.read(async |client| export::timeline(client, id).await).await?;
    let timeline = timeline.ok_or_else(|| Problem::not_found("outbox with this id"))?;
    let header = header::<export::TimelineRecord>(format)?;
    let text = lines(format, &timeline)?;
    Ok(file(format, &format!("outbox-{id}"), Body::from(header + &text)))
}

impl OperationsExport {
    /// The export as a streamed file: complete, or refused before it begins. If reading fails later, the connection is
    /// cut, so that the client does not take the file for complete.
    pub(crate) async fn run(self, console: &ConsoleState, caller: &Caller) -> Result<Response, Problem> {
        let Self { from, to, format } = self;
        if from >= to {
            return Err(Problem::bad_request("from must be before to"));
        }
        let range = Range { from, to };
        let range =
            console.database.read(async |client| range.complete(client, OPEN_TRANSACTION_TIMEOUT).await).await?;
        let Some(Range { from, to }) = range else {
            return Err(Problem::bad_request("from is in the future: there is nothing to export yet"));
        };
        let count = async |client: &_| reader::count_operations(client, from, to, MAX_OPERATIONS + 1).await;
        if console.database.read(count).await? > MAX_OPERATIONS {
            return Err(Problem::bad_request(format!(
                "the period has more than {MAX_OPERATIONS} operations: export a shorter period, or use symphony audit"
            )));
        }
        let permit = console.exports.try_acquire(caller);
        let permit = permit
            .ok_or_else(|| Problem::unavailable("other exports are running: try again when they have ended"))?;
        let export = ExportStream {
            console: Arc::clone(console),
            operations: Operations::of(Range { from, to }),
            format,
            began: Instant::now(),
            _permit: permit,
        };
        let header = stream::iter([Ok::<_, std::io::Error>(header::<Operation>(format)?)]);
        let lines =
            stream::try_unfold(export, async |mut export| Ok(export.next().await?.map(|lines| (lines, export))));
        let day = |at: Timestamp| at.strftime("%Y%m%dT%H%M%SZ").to_string();
        let name = format!("operations-{}-{}", day(from), day(to));
        let mut response = file(format, &name, Body::from_stream(stream::StreamExt::chain(header, lines)));
        let end = HeaderValue::from_str(&to.to_string());
        response.headers_mut().insert(
            EXPORT_END_HEADER,
            end.map_err(|_| Problem::bad_request("to is not a time that a header can hold"))?,
        );
        Ok(response)
    }
}

/// A running export. Between two pages it holds no database session.
struct ExportStream {
    console: ConsoleState,
    operations: Operations,
    format: Format,
    began: Instant,
    _permit: Permit,
}

impl ExportStream {
    /// The next lines; none at the end.
    async fn next(&mut self) -> Result<Option<String>, std::io::Error> {
        let cut = |problem: Problem| {
            tracing::warn!(problem = problem.detail(), "an audit export failed and was cut off");
            std::io::Error::other(problem.detail().to_owned())
        };
        if self.began.elapsed() > EXPORT_TIMEOUT {
            return Err(cut(Problem::unavailable("the client did not read the export within 10 minutes")));
        }
        let operations = &mut self.operations;
        let page = self.console.database.read(async |client| operations.next(client).await).await.map_err(cut)?;
        if page.is_empty() {
            return Ok(None);
        }
        lines(self.format, &page).map(Some).map_err(cut)
    }
}

fn header<R: ExportRecord>(format: Format) -> Result<String, Problem> {
    format.header::<R>().map_err(unwritable)
}

fn lines<R: ExportRecord>(format: Format, records: &[R]) -> Result<String, Problem> {
    format.lines(records).map_err(unwritable)
}

fn unwritable(error: export::Error) -> Problem {
    tracing::error!(%error, "a record could not be exported");
    let detail = "a record could not be written in this format; the log of this process has the error";
    Problem::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, detail)
}

/// A file that a browser saves instead of showing it.
fn file(format: Format, name: &str, body: Body) -> Response {
    let disposition = format!("attachment; filename=\"{name}.{}\"", format.extension());
    ([(CONTENT_TYPE, format.media().to_owned()), (CONTENT_DISPOSITION, disposition)], body).into_response()
}
