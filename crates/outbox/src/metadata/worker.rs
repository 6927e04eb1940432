//! What a worker asks of the database: entries, to end many claims at once, and repair.
//!
//! Every call is a transaction of its own; run them on a client, not inside a transaction. For a login with the role
//! `symphony_executor`. Knows no store and decides nothing: not when to claim, nor what an answer means.

use std::time::Duration;

use jiff::Timestamp;
use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::claimed::{self, claimed};
use super::{Claimed, EntryId, Lease, Reason, Status};
use crate::WorkerId;
use crate::ask::Ask;
use crate::error::metadata::{ClaimError, MoveError};
use crate::error::{Fault, Report};

const CLAIM: &str = "\
    select id, entity_type, entity_id, metadata, version, retry_count, max_retries, claim_token, created_at \
    from symphony.claim_metadata_batch($1, $2)";
const COMPLETE: &str = "\
    select status::text, retry_count, next_retry_at, refusal, refusal_message \
    from symphony.complete_metadata_batch($1, $2, $3, $4)";
const REPAIR: &str = "\
    select id, status::text, lost_worker \
    from symphony.repair_metadata_entries(p_limit => $1)";
const NEXT_DUE: &str = "select symphony.next_metadata_due()";

/// How a claim ended, as a worker says it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The second store has it, for good.
    Published,
    /// It did not get there, or nobody knows: tried again, or given up where no retries are left.
    Failed(Reason),
}

/// How one of several claims ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The claim.
    pub lease: Lease,
    /// How it ended.
    pub outcome: Outcome,
}

/// What became of one of several claims.
#[derive(Debug)]
pub struct Answer {
    /// The status that the entry has now; none where there is no such entry or nobody looked.
    pub status: Option<Status>,
    /// When it may be claimed again, where it failed and has retries left.
    pub next_retry_at: Option<Timestamp>,
    /// Why nothing was changed, if that is so.
    pub refused: Option<MoveError>,
}

/// An entry whose claim was too old.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The entry.
    pub id: EntryId,
    /// What it is now: [`Status::Failed`], or [`Status::Dlq`] where no retries were left.
    pub status: Status,
    /// Who held it.
    pub lost_worker: Option<WorkerId>,
}

/// Claims entries, those that are due longest first, in the order of their creation. A size of 0 or less means 100, one over 1000
/// means 1000.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim(client: &impl Ask, worker: &WorkerId, size: i32) -> Result<Vec<Claimed>, ClaimError> {
    let rows = client.ask(CLAIM, &[(&worker.as_str(), Type::TEXT), (&size, Type::INT4)]).await?;
    Ok(rows.iter().map(claimed).collect::<Result<_, _>>()?)
}

/// Ends 1 to 1000 claims, each by its own right: one's refusal never undoes another's outcome. The answers are in the order given.
///
/// # Errors
///
/// For the call as a whole, where nothing was recorded. See [`MoveError`].
pub async fn complete_batch(client: &impl Ask, completions: &[Completion]) -> Result<Vec<Answer>, MoveError> {
    let ids: Vec<_> = completions.iter().map(|c| c.lease.id.0).collect();
    let tokens: Vec<_> = completions.iter().map(|c| c.lease.token.0).collect();
    let (outcomes, errors): (Vec<_>, Vec<_>) = completions.iter().map(|c| said(&c.outcome)).unzip();
    let rows = client
        .ask(
            COMPLETE,
            &[
                (&ids, Type::UUID_ARRAY),
                (&tokens, Type::UUID_ARRAY),
                (&outcomes, Type::TEXT_ARRAY),
                (&errors, Type::TEXT_ARRAY),
            ],
        )
        .await?;
    Ok(rows.iter().map(answer).collect::<Result<_, _>>()?)
}

/// Gives up an entry that failed and that nobody holds: FAILED to DLQ. For `symphony_operator` as well.
///
/// # Errors
///
/// See [`MoveError`]. Nothing has changed then.
pub async fn dead_letter(client: &impl Ask, id: EntryId, why: &Reason) -> Result<(), MoveError> {
    claimed::dead_letter(client, id, None, why).await
}

/// Ends at most so many claims that are older than 5 minutes, 1 to 1000, whoever held them.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn repair(client: &impl Ask, most: i32) -> Result<Vec<Repaired>, ClaimError> {
    let rows = client.ask(REPAIR, &[(&most, Type::INT4)]).await?;
    Ok(rows.iter().map(repaired).collect::<Result<_, _>>()?)
}

/// In how long the next entry that failed may be claimed again, by the clock of the database; none where none waits.
///
/// # Errors
///
/// See [`Fault`].
pub async fn next_due(client: &impl Ask) -> Result<Option<Duration>, Fault> {
    let row = client.ask_one(NEXT_DUE, &[]).await?;
    let after_ms: Option<i64> = row.try_get(0)?;
    Ok(after_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default())))
}

fn said(outcome: &Outcome) -> (&'static str, Option<&str>) {
    match outcome {
        Outcome::Published => (Status::Published.as_str(), None),
        Outcome::Failed(why) => (Status::Failed.as_str(), Some(why.as_str())),
    }
}

fn answer(row: &Row) -> Result<Answer, tokio_postgres::Error> {
    let refusal: Option<String> = row.try_get("refusal")?;
    let refused = match refusal {
        Some(refusal) => Some(Report::of_row(refusal, row.try_get("refusal_message")?).into()),
        None => None,
    };
    Ok(Answer { status: row.try_get("status")?, next_retry_at: row.try_get("next_retry_at")?, refused })
}

fn repaired(row: &Row) -> Result<Repaired, tokio_postgres::Error> {
    Ok(Repaired {
        id: EntryId(row.try_get("id")?),
        status: row.try_get("status")?,
        lost_worker: row.try_get("lost_worker")?,
    })
}
