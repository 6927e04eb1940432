//! The dead-letter queue: a list, and a bulk redrive that first counts what matches.

use axum::Json;
use axum::extract::State;
use axum::http::StatusCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use symphony_db::OutboxId;
use symphony_db::payment::operator::{self, Redriven};
use symphony_db::payment::reader::{self, DeadLetterFilter, Outbox};

use super::audit_context::AuditContext;
use super::outboxes::page;
use crate::access::{Caller, Scope};
use crate::endpoint::Endpoint;
use crate::extract::{JsonBody, QueryParams, optional_name};
use crate::openapi;
use crate::paging::{self, CursorKind, Page};
use crate::problem::Problem;
use crate::{Console, ConsoleState};

/// The most dead letters that one request redrives.
const MAX_REDRIVE_BATCH: i32 = 200;

/// A search for dead letters. Fields that are left out do not filter.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct DeadLetterQuery {
    /// true: only unknown outcomes; false: only known failures.
    outcome_unknown: Option<bool>,
    /// The rail.
    rail_type: Option<String>,
    /// The error code.
    error_code: Option<String>,
    /// Items per page, 1 to 200; 50 if left out.
    limit: Option<i32>,
    /// The next_cursor of the page before.
    cursor: Option<String>,
}

/// A bulk redrive of known failures, by rail and error code.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("dependentRequired" = { "expected": ["reason"] }))]
pub(crate) struct BulkRedrive {
    /// The rail.
    #[schemars(length(max = 200), regex(pattern = openapi::NO_NUL))]
    pub(crate) rail_type: Option<String>,
    /// The error code.
    #[schemars(length(max = 200), regex(pattern = openapi::NO_NUL))]
    pub(crate) error_code: Option<String>,
    /// The number that a dry run returned as matching. Without it the request is a dry run and changes nothing.
    pub(crate) expected: Option<i64>,
    /// The operator. The API puts the name of the token in front; required without tokens.
    #[serde(default)]
    #[schemars(length(max = 100), regex(pattern = openapi::NO_NUL))]
    pub(crate) actor: String,
    /// The reason. A dry run does not need it.
    #[serde(default)]
    #[schemars(length(min = 1, max = 2000), regex(pattern = openapi::NOT_BLANK))]
    pub(crate) reason: String,
}

/// The result of a dry run or of a bulk redrive.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct BulkRedriveResult {
    /// How many dead letters matched before the redrive.
    pub(crate) matching: i64,
    /// Whether there are older failures that were not counted.
    pub(crate) more: bool,
    /// The redriven outboxes: at most 200, the latest failures first.
    pub(crate) redriven: Vec<Redriven>,
    /// Dead letters that were not redriven, most likely because another operator was faster.
    pub(crate) refused: Vec<RefusedRedrive>,
}

/// A dead letter that was not redriven.
#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct RefusedRedrive {
    /// Its id.
    outbox_id: OutboxId,
    /// The reason.
    detail: String,
}

pub(super) fn endpoints() -> Vec<Endpoint> {
    vec![
        Endpoint::get::<DeadLetterQuery, Page<Outbox>, _>(
            "/dead-letters",
            Scope::Read,
            "Dead letters, latest first.",
            list,
        ),
        Endpoint::post::<BulkRedrive, BulkRedriveResult, _>(
            "/dead-letters/redrive",
            "Count the known failures that match, or redrive them if `expected` is their number.",
            redrive,
        ),
    ]
}

async fn list(
    State(console): State<ConsoleState>,
    QueryParams(query): QueryParams<DeadLetterQuery>,
) -> Result<Json<Page<Outbox>>, Problem> {
    let limit = paging::limit(query.limit)?;
    let before = paging::decode_uuid(CursorKind::Outbox, query.cursor.as_deref())?.map(Into::into);
    let filter = DeadLetterFilter {
        outcome_unknown: query.outcome_unknown,
        rail_type: optional_name("rail_type", query.rail_type)?,
        error_code: optional_name("error_code", query.error_code)?,
        rail_code: None,
    };
    let read = async |client: &_| reader::list_dead_letters(client, &filter, before, limit).await;
    Ok(Json(page(console.database.read(read).await?)))
}

async fn redrive(
    State(console): State<ConsoleState>,
    caller: Caller,
    JsonBody(redrive): JsonBody<BulkRedrive>,
) -> Result<Json<BulkRedriveResult>, Problem> {
    Ok(Json(redrive.run(&console, &caller).await?))
}

impl BulkRedrive {
    /// Counts the matching failures, and redrives them if the count is the expected one. Each redrive is one
    /// transaction.
    pub(crate) async fn run(self, console: &Console, caller: &Caller) -> Result<BulkRedriveResult, Problem> {
        // Unknown outcomes are never included. The database would refuse them too.
        let filter = DeadLetterFilter {
            outcome_unknown: Some(false),
            rail_type: optional_name("rail_type", self.rail_type)?,
            error_code: optional_name("error_code", self.error_code)?,
            rail_code: None,
        };
        // A dry run needs no reason, and refuses a wrong one.
        let audit = if self.expected.is_some() || !self.reason.is_empty() {
            Some(AuditContext { actor: self.actor, reason: self.reason }.for_caller(caller)?)
        } else {
            None
        };
        let count = async |client: &_| reader::count_dead_letters(client, &filter).await;
        let counted = console.database.read(count).await?;
        let mut result = BulkRedriveResult {
            matching: counted.known,
            more: counted.more,
            redriven: Vec::new(),
            refused: Vec::new(),
        };
        let (Some(expected), Some(audit)) = (self.expected, audit) else { return Ok(result) };
        if expected != counted.known {
            let detail = format!(
                "{} dead letters match now, not {expected}: repeat the dry run and check them",
                counted.known
            );
            return Err(Problem::new(StatusCode::CONFLICT, detail));
        }
        let read = async |client: &_| reader::list_dead_letters(client, &filter, None, MAX_REDRIVE_BATCH).await;
        for outbox in console.database.read(read).await?.rows {
            let id = outbox.outbox_id;
            match console.database.act(async |client| operator::redrive(client, id, audit.as_db()).await).await {
                Ok(redriven) => result.redriven.push(redriven),
                Err(problem) if problem.status() == StatusCode::CONFLICT => {
                    result.refused.push(RefusedRedrive { outbox_id: id, detail: problem.detail().to_owned() });
                }
                // The database is unreachable. The audit log has what was done; the rest stays in the dead-letter
                // queue.
                Err(problem) if result.redriven.is_empty() => return Err(problem),
                Err(problem) => {
                    result.refused.push(RefusedRedrive { outbox_id: id, detail: problem.detail().to_owned() });
                    break;
                }
            }
        }
        Ok(result)
    }
}
