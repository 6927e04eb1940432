//! The calls of a worker of the metadata lane: claim, complete many claims at once, repair.
//!
//! Each call is one transaction: run it on a client, not inside a transaction. The login needs the role
//! `symphony_executor`. When to claim, and what a store's answer means, is the worker's decision.

use std::time::Duration;

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::{Json, Type};

use super::claimed::{self, claimed};
use super::{Claimed, EntryId, Lease, Reason, Status};
use crate::WorkerId;
use crate::epoch::{OpenedEpoch, claim_epoch, opened_epoch};
use crate::error::{ClaimError, CompleteError};
use crate::error::{DatabaseError, ErrorDetails};
use crate::executor::Executor;

/// The first row carries the epoch of the claim, and the one that it opened. The left join keeps that row if the claim returns nothing.
const CLAIM: &str = "\
    select c.id, c.entity_type, c.entity_id, c.metadata, c.version, c.retry_count, c.max_retries, c.claim_token, c.created_at, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.opened_epoch', true) end as opened_epoch, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.epoch', true) end as epoch \
    from (values (1)) one \
    left join symphony.claim_metadata_batch($1, $2) with ordinality c on true";
const CLAIM_BY_STORE: &str = "\
    select c.id, c.entity_type, c.entity_id, c.metadata, c.version, c.retry_count, c.max_retries, c.claim_token, c.created_at, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.opened_epoch', true) end as opened_epoch, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.epoch', true) end as epoch \
    from (values (1)) one \
    left join symphony.claim_metadata_by_store($1, $2, $3) with ordinality c on true";
const CLAIM_NEWEST: &str = "\
    select c.id, c.entity_type, c.entity_id, c.metadata, c.version, c.retry_count, c.max_retries, c.claim_token, c.created_at, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.opened_epoch', true) end as opened_epoch, \
           case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.epoch', true) end as epoch \
    from (values (1)) one \
    left join symphony.claim_newest_metadata($1) with ordinality c on true";
const COMPLETE: &str = "\
    select status::text, retry_count, next_retry_at, refusal, refusal_message \
    from symphony.complete_metadata_batch($1, $2, $3, $4)";
const REPAIR: &str = "\
    select id, status::text, lost_worker \
    from symphony.repair_metadata_entries(p_limit => $1)";
const NEXT_DUE: &str = "select symphony.next_metadata_due()";

/// Claimed entries.
#[derive(Debug, Default)]
pub struct Claim {
    /// The entries, in the order of their creation; empty if none was due.
    pub entries: Vec<Claimed>,
    /// The epoch in which it was made.
    pub epoch: Option<i64>,
    /// The epoch that the claim opened, because the server is not the one of the newest epoch.
    pub opened_epoch: Option<OpenedEpoch>,
}

/// The outcome of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The second store has it. This is final.
    Published,
    /// Not stored, or unknown: it is retried, or moves to the DLQ if no retries are left.
    Failed(Reason),
}

/// The outcome of one claim of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The lease of the claim.
    pub lease: Lease,
    /// The outcome.
    pub outcome: Outcome,
}

/// The result of one completion of a batch.
#[derive(Debug)]
pub struct Completed {
    /// The status of the entry; none if there is no such entry, or if the completion was refused before the entry was
    /// read.
    pub status: Option<Status>,
    /// When it is due again, if it failed and retries are left.
    pub next_retry_at: Option<Timestamp>,
    /// The error, if nothing was changed.
    pub refused: Option<CompleteError>,
}

/// An entry whose claim had expired.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repaired {
    /// The entry.
    pub id: EntryId,
    /// Its new status: [`Status::Failed`], or [`Status::Dlq`] if no retries were left.
    pub status: Status,
    /// The worker whose claim expired.
    pub lost_worker: Option<WorkerId>,
}

/// Claims due entries, those that have been due longest first, and returns them in the order of their creation.
///
/// A size of 0 or less means 100, one over 1000 means 1000.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim(client: &impl Executor, worker: &WorkerId, size: i32) -> Result<Claim, ClaimError> {
    claim_of(&client.fetch_all(CLAIM, &[(&worker.as_str(), Type::TEXT), (&size, Type::INT4)]).await?)
}

/// A route of a claim, and how many entries of its store the claim may return. The first that matches an entity decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimRoute<'a> {
    /// The entity type, or `*`.
    pub entity_type: &'a str,
    /// The store.
    pub store: &'a str,
    /// At most so many entries of the store, by all of its routes.
    pub limit: u32,
}

/// Claims entries of each store up to its limit, whatever waits for the others.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim_by_store(
    client: &impl Executor,
    worker: &WorkerId,
    size: i32,
    routes: &[ClaimRoute<'_>],
) -> Result<Claim, ClaimError> {
    let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&worker.as_str(), Type::TEXT), (&size, Type::INT4), (&Json(routes), Type::JSONB)];
    claim_of(&client.fetch_all(CLAIM_BY_STORE, &arguments).await?)
}

/// Claims the newest entry that has not been attempted: it shows whether a failing store works again.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim_newest(client: &impl Executor, worker: &WorkerId) -> Result<Claim, ClaimError> {
    claim_of(&client.fetch_all(CLAIM_NEWEST, &[(&worker.as_str(), Type::TEXT)]).await?)
}

fn claim_of(rows: &[Row]) -> Result<Claim, ClaimError> {
    let Some(first) = rows.first() else { return Ok(Claim::default()) };
    let epoch = claim_epoch(first.try_get("epoch")?);
    let opened_epoch = opened_epoch(first.try_get("opened_epoch")?);
    // A claim that brings nothing leaves one row without an entry.
    let nothing = first.try_get::<_, Option<uuid::Uuid>>("id")?.is_none();
    let entries = if nothing { Vec::new() } else { rows.iter().map(claimed).collect::<Result<_, _>>()? };
    Ok(Claim { entries, epoch, opened_epoch })
}

/// Completes 1 to 1000 claims. Each is decided separately: a refused one does not undo the others. The results are in
/// the order of the completions.
///
/// # Errors
///
/// If the call as a whole failed and nothing was recorded. See [`CompleteError`].
pub async fn complete_batch(
    client: &impl Executor,
    completions: &[Completion],
) -> Result<Vec<Completed>, CompleteError> {
    let ids: Vec<_> = completions.iter().map(|c| c.lease.id.0).collect();
    let tokens: Vec<_> = completions.iter().map(|c| c.lease.token.0).collect();
    let (outcomes, errors): (Vec<_>, Vec<_>) = completions.iter().map(|c| arguments(&c.outcome)).unzip();
    let rows = client
        .fetch_all(
            COMPLETE,
            &[
                (&ids, Type::UUID_ARRAY),
                (&tokens, Type::UUID_ARRAY),
                (&outcomes, Type::TEXT_ARRAY),
                (&errors, Type::TEXT_ARRAY),
            ],
        )
        .await?;
    Ok(rows.iter().map(completed).collect::<Result<_, _>>()?)
}

/// Moves a failed entry that is not claimed to the dead-letter queue: FAILED to DLQ. `symphony_operator` may call it,
/// too.
///
/// # Errors
///
/// See [`CompleteError`]. After an error nothing has changed.
pub async fn dead_letter(client: &impl Executor, id: EntryId, reason: &Reason) -> Result<(), CompleteError> {
    claimed::dead_letter(client, id, None, reason).await
}

/// Repairs at most `at_most` claims, 1 to 1000, that are older than 5 minutes.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn repair(client: &impl Executor, at_most: i32) -> Result<Vec<Repaired>, ClaimError> {
    let rows = client.fetch_all(REPAIR, &[(&at_most, Type::INT4)]).await?;
    Ok(rows.iter().map(repaired).collect::<Result<_, _>>()?)
}

/// How long until the next retry is due, by the database's clock; none if no retry is scheduled.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn next_due(client: &impl Executor) -> Result<Option<Duration>, DatabaseError> {
    let row = client.fetch_one(NEXT_DUE, &[]).await?;
    let after_ms: Option<i64> = row.try_get(0)?;
    Ok(after_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default())))
}

fn arguments(outcome: &Outcome) -> (&'static str, Option<&str>) {
    match outcome {
        Outcome::Published => (Status::Published.as_str(), None),
        Outcome::Failed(reason) => (Status::Failed.as_str(), Some(reason.as_str())),
    }
}

fn completed(row: &Row) -> Result<Completed, tokio_postgres::Error> {
    let refusal: Option<String> = row.try_get("refusal")?;
    let refused = match refusal {
        Some(refusal) => Some(ErrorDetails::of_row(refusal, row.try_get("refusal_message")?).into()),
        None => None,
    };
    Ok(Completed { status: row.try_get("status")?, next_retry_at: row.try_get("next_retry_at")?, refused })
}

fn repaired(row: &Row) -> Result<Repaired, tokio_postgres::Error> {
    Ok(Repaired {
        id: EntryId(row.try_get("id")?),
        status: row.try_get("status")?,
        lost_worker: row.try_get("lost_worker")?,
    })
}
