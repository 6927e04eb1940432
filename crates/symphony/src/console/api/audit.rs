//! What auditors take away, as a file: the log of operations of a time, and the story of one outbox.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::header::{self, HeaderValue};
use axum::response::{IntoResponse, Response};
use futures_util::stream;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;
use symphony_outbox::OutboxId;
use symphony_outbox::payment::reading::{self, Operation};

use crate::audit::{self, Format, Operations, Range, Record};
use crate::console::access::{Caller, Scope};
use crate::console::endpoint::Endpoint;
use crate::console::given::{Asked, OutboxInPath};
use crate::console::problem::Problem;
use crate::console::quota::Place;
use crate::console::{Console, Desk};

/// The most operations that one export has.
const MOST: i64 = 100_000;
/// Exports that run at the same time.
pub(crate) const EXPORTS: usize = 2;
/// Those of one token.
pub(crate) const EXPORTS_PER_TOKEN: usize = 1;
/// How long an export waits for transactions that are open: less than a statement of the console may take.
const WAIT: Duration = Duration::from_millis(1500);
/// Says where an export ends, and so where the next one starts.
const END: &str = "symphony-export-end";
/// After so long whoever reads is taken to have gone.
const LONGEST: Duration = Duration::from_mins(10);
const KINDS: &[&str] = &["text/csv", "application/x-ndjson"];

/// Which operations, and how they are written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Export {
    /// Done at this moment or later.
    from: Timestamp,
    /// Done before this moment.
    to: Timestamp,
    /// csv, or ndjson for a JSON object a line; csv if it is left out.
    #[serde(default)]
    format: Format,
}

/// How it is written.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Written {
    /// csv, or ndjson for a JSON object a line; csv if it is left out.
    #[serde(default)]
    pub(crate) format: Format,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<Export, String, _>(
            "/audit/operations",
            Scope::Audit,
            "The log of operations of a time as a file, in order: all of it, at most 100,000, or none. Ends now, if that time is not over: the header \
             symphony-export-end says where, and the next export starts there. Refused with 503 while a transaction that has done something stays open.",
            operations,
        )
        .gives_files(KINDS),
        Endpoint::get::<Written, String, _>(
            "/audit/outboxes/{outbox_id}",
            Scope::Audit,
            "The whole story of one outbox as a file, without its payload.",
            one,
        )
        .gives_files(KINDS),
    ]
}

async fn operations(
    State(desk): State<Desk>,
    caller: Caller,
    Asked(export): Asked<Export>,
) -> Result<Response, Problem> {
    export.carry_out(&desk, &caller).await
}

async fn one(
    State(desk): State<Desk>,
    OutboxInPath(id): OutboxInPath,
    Asked(Written { format }): Asked<Written>,
) -> Result<Response, Problem> {
    story_file(&desk, id, format).await
}

/// The story of one outbox as a file.
pub(crate) async fn story_file(desk: &Console, id: OutboxId, format: Format) -> Result<Response, Problem> {
    let story = desk.database.read(async |client| audit::story(client, id).await).await?;
    let story = story.ok_or_else(|| Problem::missing("outbox of that id"))?;
    let text = text(format, &story)?;
    Ok(file(format, &format!("outbox-{id}"), Body::from(format.heading::<audit::Line>() + &text)))
}

impl Export {
    /// The file: whole, or refused before it begins. One that breaks off is cut, and so is not taken for whole.
    pub(crate) async fn carry_out(self, desk: &Desk, caller: &Caller) -> Result<Response, Problem> {
        let Self { from, to, format } = self;
        if from >= to {
            return Err(Problem::bad("from must be before to"));
        }
        let range = Range { from, to };
        let range = desk.database.read(async |client| range.complete(client, WAIT).await).await?;
        let Some(Range { from, to }) = range else {
            return Err(Problem::bad("from is later than now: there is nothing to export yet"));
        };
        let count = async |client: &_| reading::count_operations(client, from, to, MOST + 1).await;
        if desk.database.read(count).await? > MOST {
            return Err(Problem::bad(format!(
                "there are more than {MOST} operations in that time: ask for a shorter one"
            )));
        }
        let place = desk.exports.take(caller);
        let place = place.ok_or_else(|| Problem::busy("other exports are under way; try again in a moment"))?;
        let reel = Reel {
            desk: Arc::clone(desk),
            operations: Operations::of(Range { from, to }),
            format,
            began: Instant::now(),
            _place: place,
        };
        let heading = stream::iter([Ok::<_, std::io::Error>(format.heading::<Operation>())]);
        let lines = stream::try_unfold(reel, async |mut reel| Ok(reel.next().await?.map(|lines| (lines, reel))));
        let day = |at: Timestamp| at.strftime("%Y%m%dT%H%M%SZ").to_string();
        let name = format!("operations-{}-{}", day(from), day(to));
        let mut response = file(format, &name, Body::from_stream(stream::StreamExt::chain(heading, lines)));
        let end = HeaderValue::from_str(&to.to_string());
        response.headers_mut().insert(END, end.map_err(|_| Problem::bad("to cannot be written"))?);
        Ok(response)
    }
}

/// An export under way. Between two chunks it holds no session of the database.
struct Reel {
    desk: Desk,
    operations: Operations,
    format: Format,
    began: Instant,
    _place: Place,
}

impl Reel {
    /// The next lines; none at the end.
    async fn next(&mut self) -> Result<Option<String>, std::io::Error> {
        let cut = |problem: Problem| {
            tracing::warn!(problem = problem.detail(), "an export was cut off");
            std::io::Error::other(problem.detail().to_owned())
        };
        if self.began.elapsed() > LONGEST {
            return Err(cut(Problem::busy("it took too long to be read")));
        }
        let operations = &mut self.operations;
        let chunk = self.desk.database.read(async |client| operations.next(client).await).await.map_err(cut)?;
        if chunk.is_empty() {
            return Ok(None);
        }
        text(self.format, &chunk).map(Some).map_err(cut)
    }
}

fn text<R: Record>(format: Format, records: &[R]) -> Result<String, Problem> {
    let wrong = |_| Problem::new(axum::http::StatusCode::INTERNAL_SERVER_ERROR, "a record could not be written");
    format.lines(records).map_err(wrong)
}

/// What a browser keeps rather than shows.
fn file(format: Format, name: &str, body: Body) -> Response {
    let kept = format!("attachment; filename=\"{name}.{}\"", format.ending());
    ([(header::CONTENT_TYPE, format.media().to_owned()), (header::CONTENT_DISPOSITION, kept)], body)
        .into_response()
}
