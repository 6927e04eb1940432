//! The calls of a worker of the event lane: claim and complete.
//!
//! Each call is one transaction: run it on a client, not inside a transaction. The login needs the role
//! `symphony_executor`. When to claim, and what a broker's answer means, is the worker's decision.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{Event, EventId, ProcessorId};
use crate::error::DatabaseError;
use crate::error::{ClaimError, CompleteError};
use crate::executor::Executor;
use crate::{BatchSize, Payload, WorkerId};

/// How many claims of others were taken over is in a setting of the transaction, which the claim sets.
const CLAIM: &str = "\
    select c.id, c.aggregate_type, c.aggregate_id, c.event_type, c.payload, c.retry_count, \
           current_setting('symphony.taken_over_claims', true) as taken_over \
    from m10_recovery.claim_outbox_events($1, $2) c";
const CLAIM_IN_ORDER: &str = "\
    select c.id, c.aggregate_type, c.aggregate_id, c.event_type, c.payload, c.retry_count, \
           current_setting('symphony.taken_over_claims', true) as taken_over \
    from symphony.claim_events_in_order($1, $2, $3) c";
const COMPLETE: &str = "select m10_recovery.complete_outbox_event($1, $2, $3, $4)";
const COMPLETE_ALL: &str = "\
    select m10_recovery.complete_outbox_event(c.id, c.processor_id, c.success, c.error) \
    from unnest($1, $2, $3, $4) as c (id, processor_id, success, error)";
const NEXT_DUE: &str = "\
    select ceil(extract(epoch from min(process_after) - now()) * 1000)::bigint \
    from m10_recovery.outbox_schedule \
    where processed_at is null and claimed_at is null and process_after is not null and process_after > now()";
// An aggregate is looked up as what comes next in its index, and compared afterwards: so no other index is of use whatever the
// planner thinks of the table, and no scan goes on behind the last of an aggregate.
const EARLIER: &str = "\
    select e.id \
    from m10_recovery.outbox_schedule o \
    cross join lateral ( \
      select e.aggregate_type, e.aggregate_id, e.id \
      from m10_recovery.outbox_schedule e \
      where e.processed_at is null \
        and (e.aggregate_type, e.aggregate_id) >= (o.aggregate_type, o.aggregate_id) \
      order by e.aggregate_type, e.aggregate_id, e.id \
      limit 1 \
    ) e \
    where o.id = $1 \
      and e.aggregate_type = o.aggregate_type \
      and e.aggregate_id = o.aggregate_id \
      and e.id < o.id";
const BEHIND: &str = "\
    select coalesce(bool_or(e.claimed_at is null), false) \
    from unnest($1) as d (id) \
    cross join lateral ( \
      select o.aggregate_type, o.aggregate_id, o.id \
      from m10_recovery.outbox_schedule o \
      where o.id = d.id \
      limit 1 \
    ) o \
    cross join lateral ( \
      select e.aggregate_type, e.aggregate_id, e.claimed_at \
      from m10_recovery.outbox_schedule e \
      where e.processed_at is null \
        and (e.aggregate_type, e.aggregate_id, e.id) > (o.aggregate_type, o.aggregate_id, o.id) \
      order by e.aggregate_type, e.aggregate_id, e.id \
      limit 1 \
    ) e \
    where e.aggregate_type = o.aggregate_type \
      and e.aggregate_id = o.aggregate_id";

/// Events under one claim, by number. Another worker may take over the claim after 5 minutes.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The name of the claim, which completes them.
    pub processor: ProcessorId,
    /// The claimed events; empty if none was due.
    pub events: Vec<Claimed>,
    /// How many of them were taken over from an expired claim.
    pub taken_over: usize,
}

/// An event under a claim.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Its number.
    pub id: EventId,
    /// What happened.
    pub event: Event,
    /// The number of failures so far.
    pub retry_count: i32,
}

/// The outcome of a dispatch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The broker has it. This is final.
    Delivered,
    /// Not delivered, or unknown: it is retried after a delay that doubles with each failure.
    Failed {
        /// The error. The database masks personal data in it and stores it.
        error: Option<String>,
    },
}

/// Claims events, the lowest numbers first, under a name that was never used before.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim(client: &impl Executor, worker: &WorkerId, size: BatchSize) -> Result<Claim, ClaimError> {
    let processor = ProcessorId::fresh(worker);
    let arguments = [
        (&processor.as_str() as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT),
        (&i32::from(size.get()), Type::INT4),
    ];
    let rows = client.fetch_all(CLAIM, &arguments).await?;
    claim_of(processor, &rows)
}

/// Claims events in the order of each aggregate: heads, which have no earlier unprocessed event of their aggregate, and up
/// to a number of followers, each directly behind an event of the same claim. It skips an aggregate whose head another
/// worker holds or whose retry is not due.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim_in_order(
    client: &impl Executor,
    worker: &WorkerId,
    size: BatchSize,
    followers: u16,
) -> Result<Claim, ClaimError> {
    let processor = ProcessorId::fresh(worker);
    let arguments = [
        (&processor.as_str() as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT),
        (&i32::from(size.get()), Type::INT4),
        (&i32::from(followers), Type::INT4),
    ];
    let rows = client.fetch_all(CLAIM_IN_ORDER, &arguments).await?;
    claim_of(processor, &rows)
}

fn claim_of(processor: ProcessorId, rows: &[Row]) -> Result<Claim, ClaimError> {
    let taken_over: Option<&str> = match rows.first() {
        Some(row) => row.try_get("taken_over")?,
        None => None,
    };
    let taken_over = taken_over.and_then(|count| count.parse().ok()).unwrap_or(0);
    Ok(Claim { processor, events: rows.iter().map(claimed).collect::<Result<_, _>>()?, taken_over })
}

/// Records how an event went.
///
/// # Errors
///
/// See [`CompleteError`]. A claim older than 5 minutes is still valid until another worker takes it over.
pub async fn complete(
    client: &impl Executor,
    processor: &ProcessorId,
    id: EventId,
    outcome: &Outcome,
) -> Result<(), CompleteError> {
    let (success, error) = success_and_error(outcome);
    client
        .fetch_one(
            COMPLETE,
            &[
                (&id.0, Type::INT8),
                (&processor.as_str(), Type::TEXT),
                (&success, Type::BOOL),
                (&error, Type::TEXT),
            ],
        )
        .await?;
    Ok(())
}

/// The outcome of one event of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The event.
    pub id: EventId,
    /// The name of its claim.
    pub processor: ProcessorId,
    /// Its outcome.
    pub outcome: Outcome,
}

/// Records how several events went, in one statement if none is refused, else one by one. The answers are in the order given.
///
/// # Errors
///
/// For what is wrong with the call as a whole. See [`CompleteError`].
pub async fn complete_batch(
    client: &impl Executor,
    completions: &[Completion],
) -> Result<Vec<Result<(), CompleteError>>, CompleteError> {
    let ids: Vec<_> = completions.iter().map(|c| c.id.0).collect();
    let processors: Vec<_> = completions.iter().map(|c| c.processor.as_str()).collect();
    let (successes, errors): (Vec<_>, Vec<_>) = completions.iter().map(|c| success_and_error(&c.outcome)).unzip();
    let all = client
        .fetch_all(
            COMPLETE_ALL,
            &[
                (&ids, Type::INT8_ARRAY),
                (&processors, Type::TEXT_ARRAY),
                (&successes, Type::BOOL_ARRAY),
                (&errors, Type::TEXT_ARRAY),
            ],
        )
        .await;
    match all.map_err(CompleteError::from) {
        Ok(_) => Ok(completions.iter().map(|_| Ok(())).collect()),
        // One's refusal undid them all.
        Err(CompleteError::LeaseLost(_)) => {
            let mut ends = Vec::with_capacity(completions.len());
            for Completion { id, processor, outcome } in completions {
                match complete(client, processor, *id, outcome).await {
                    Err(CompleteError::Database(fault)) => return Err(fault.into()),
                    end => ends.push(end),
                }
            }
            Ok(ends)
        }
        Err(error) => Err(error),
    }
}

/// In how long the next event that failed may be claimed again, by the clock of the database; none where none waits.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn next_due(client: &impl Executor) -> Result<Option<Duration>, DatabaseError> {
    let row = client.fetch_one(NEXT_DUE, &[]).await?;
    let after_ms: Option<i64> = row.try_get(0)?;
    Ok(after_ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or_default())))
}

/// The first event of the same aggregate that is unprocessed and has a lower number; none where there is none.
///
/// What is not committed yet is not seen: who needs an order within an aggregate must
/// publish its events one transaction after the other.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn earlier_unprocessed(client: &impl Executor, id: EventId) -> Result<Option<EventId>, DatabaseError> {
    let rows = client.fetch_all(EARLIER, &[(&id.0, Type::INT8)]).await?;
    rows.first().map(|row| Ok(EventId(row.try_get(0)?))).transpose()
}

/// Whether the next unprocessed event behind one of these, in its aggregate, is not claimed.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn any_behind(client: &impl Executor, ids: &[EventId]) -> Result<bool, DatabaseError> {
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    Ok(client.fetch_one(BEHIND, &[(&ids, Type::INT8_ARRAY)]).await?.try_get(0)?)
}

fn success_and_error(outcome: &Outcome) -> (bool, Option<&str>) {
    match outcome {
        Outcome::Delivered => (true, None),
        Outcome::Failed { error } => (false, error.as_deref()),
    }
}

fn claimed(row: &Row) -> Result<Claimed, tokio_postgres::Error> {
    Ok(Claimed {
        id: EventId(row.try_get("id")?),
        event: Event::new(
            row.try_get::<_, String>("aggregate_type")?,
            row.try_get::<_, String>("aggregate_id")?,
            row.try_get::<_, String>("event_type")?,
            row.try_get::<_, Payload>("payload")?,
        ),
        retry_count: row.try_get("retry_count")?,
    })
}
