//! Dead letters: listed, and redriven many at a time once somebody has seen how many.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_outbox::OutboxId;
use symphony_outbox::payment::operator::{self, Redriven};
use symphony_outbox::payment::reading::{self, DeadLetterFilter, Outbox};

use super::outboxes::page;
use super::warrant::Warrant;
use crate::console::access::{Caller, Scope};
use crate::console::endpoint::Endpoint;
use crate::console::given::{Asked, Given, asked};
use crate::console::openapi;
use crate::console::paging::{self, Kind, Page};
use crate::console::problem::Problem;
use crate::console::{Console, Desk};

/// The most that one request redrives.
const BATCH: i32 = 200;

/// Which dead letters. What is left out is not asked.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Filter {
    /// Whether nobody knows if they were paid.
    outcome_unknown: Option<bool>,
    /// Their rail.
    rail_type: Option<String>,
    /// Why they failed.
    error_code: Option<String>,
    /// At most so many, 1 to 200; 50 if it is left out.
    limit: Option<i32>,
    /// Where a page before this one ended.
    cursor: Option<String>,
}

/// What to redrive: failures that were not paid, by rail and error.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("dependentRequired" = { "expected": ["reason"] }))]
pub(crate) struct Redrive {
    /// Their rail.
    #[schemars(length(max = 200), regex(pattern = openapi::NO_NUL))]
    pub(crate) rail_type: Option<String>,
    /// Why they failed.
    #[schemars(length(max = 200), regex(pattern = openapi::NO_NUL))]
    pub(crate) error_code: Option<String>,
    /// How many a dry run counted. Without it this is the dry run, and nothing is done.
    pub(crate) expected: Option<i64>,
    /// Who does it.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    pub(crate) actor: String,
    /// Why. Not needed for a dry run.
    #[serde(default)]
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    pub(crate) reason: String,
}

/// What a dry run counted, or what was done.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Redrove {
    /// How many fitted before anything was done.
    pub(crate) matching: i64,
    /// Whether there are older failures that were not looked at.
    pub(crate) more: bool,
    /// What was redriven: at most 200 at a time, the latest failures first.
    pub(crate) redriven: Vec<Redriven>,
    /// What was refused, and why: somebody else was faster, most likely.
    pub(crate) refused: Vec<Refused>,
}

/// One that was not redriven.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct Refused {
    /// Which.
    outbox_id: OutboxId,
    /// Why not.
    detail: String,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<Filter, Page<Outbox>, _>(
            "/dead-letters",
            Scope::Read,
            "Failures that wait for a person, the latest first.",
            list,
        ),
        Endpoint::post::<Redrive, Redrove, _>(
            "/dead-letters/redrive",
            "Count known failures that fit, or redrive them once their number is given back.",
            redrive,
        ),
    ]
}

async fn list(State(desk): State<Desk>, Asked(query): Asked<Filter>) -> Result<Json<Page<Outbox>>, Problem> {
    let limit = paging::limit(query.limit)?;
    let before = paging::id(Kind::Outbox, query.cursor.as_deref())?.map(Into::into);
    let filter = DeadLetterFilter {
        outcome_unknown: query.outcome_unknown,
        rail_type: asked("rail_type", query.rail_type)?,
        error_code: asked("error_code", query.error_code)?,
    };
    let read = async |client: &_| reading::page_of_dead_letters(client, &filter, before, limit).await;
    Ok(Json(page(desk.database.read(read).await?)))
}

async fn redrive(
    State(desk): State<Desk>,
    caller: Caller,
    Given(redrive): Given<Redrive>,
) -> Result<Json<Redrove>, Problem> {
    Ok(Json(redrive.carry_out(&desk, &caller).await?))
}

impl Redrive {
    /// Counts, and does it where the count is as expected. Each failure is a transaction of its own.
    pub(crate) async fn carry_out(self, desk: &Console, caller: &Caller) -> Result<Redrove, Problem> {
        let rail_type = asked("rail_type", self.rail_type)?;
        let error_code = asked("error_code", self.error_code)?;
        let count = async |client: &_| {
            reading::count_dead_letters(client, rail_type.as_deref(), error_code.as_deref()).await
        };
        let counted = desk.database.read(count).await?;
        let mut redrove =
            Redrove { matching: counted.known, more: counted.more, redriven: Vec::new(), refused: Vec::new() };
        let Some(expected) = self.expected else { return Ok(redrove) };
        let signed = Warrant { actor: self.actor, reason: self.reason }.signed(caller)?;
        if expected != counted.known {
            let detail = format!("{} fit now, not {expected}: look again before you act", counted.known);
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
        // What nobody knows is never among them: the database would refuse it, and here it is not even asked.
        let filter = DeadLetterFilter { outcome_unknown: Some(false), rail_type, error_code };
        let read = async |client: &_| reading::page_of_dead_letters(client, &filter, None, BATCH).await;
        for outbox in desk.database.read(read).await?.outboxes {
            let id = outbox.outbox_id;
            match desk.database.act(async |client| operator::redrive(client, id, signed.given()).await).await {
                Ok(redriven) => redrove.redriven.push(redriven),
                Err(problem) if problem.status() == StatusCode::CONFLICT => {
                    redrove.refused.push(Refused { outbox_id: id, detail: problem.detail().to_owned() });
                }
                // The database is away: what was done is in the log, and the rest still waits.
                Err(problem) if redrove.redriven.is_empty() => return Err(problem),
                Err(problem) => {
                    redrove.refused.push(Refused { outbox_id: id, detail: problem.detail().to_owned() });
                    break;
                }
            }
        }
        Ok(redrove)
    }
}
