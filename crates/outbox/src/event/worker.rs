//! What a worker asks of the database: events, and to record how they went.
//!
//! Every call is a transaction of its own; run them on a client, not inside a transaction. For a login with the role
//! `symphony_executor`. Knows no broker and decides nothing: not when to claim, nor what an answer means.

use std::time::Duration;

use tokio_postgres::Row;
use tokio_postgres::types::Type;

use super::{Event, EventId, ProcessorId};
use crate::ask::Ask;
use crate::error::Fault;
use crate::error::event::{ClaimError, CompleteError};
use crate::{BatchSize, WorkerId};

/// How many claims of others were taken over is in a setting of the transaction, emptied before the claim and read after it.
const CLAIM: &str = "\
    select c.id, c.aggregate_type, c.aggregate_id, c.event_type, c.payload, c.retry_count, \
           current_setting('symphony.ended_claims', true) as ended_claims \
    from m10_recovery.claim_outbox_events( \
      case when set_config('symphony.ended_claims', '', true) = '' then $1 end, $2) c";
/// The room for followers is a setting of this statement alone. The claim takes it as an argument of a sort, so that it is set first.
const CLAIM_IN_ORDER: &str = "\
    select c.id, c.aggregate_type, c.aggregate_id, c.event_type, c.payload, c.retry_count, \
           current_setting('symphony.ended_claims', true) as ended_claims \
    from set_config('symphony.claim_followers', $3::text, true) said, \
         m10_recovery.claim_outbox_events( \
           case when said is not null and set_config('symphony.ended_claims', '', true) = '' then $1 end, $2) c";
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

/// Events under one claim, by number. The claim may be taken over by others after 5 minutes.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The name under which they are held, which completes them.
    pub processor: ProcessorId,
    /// What is held; nothing where nothing was claimable.
    pub events: Vec<Claimed>,
    /// How many of them another processor had claimed, and was not heard of again.
    pub taken_over: usize,
}

/// An event under a claim.
#[derive(Clone, Debug)]
pub struct Claimed {
    /// Its number.
    pub id: EventId,
    /// What happened.
    pub event: Event,
    /// Failures so far.
    pub retry_count: i32,
}

/// How an event went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is delivered, for good.
    Delivered,
    /// It is not delivered, or nobody knows: it comes back after a delay that doubles with each failure.
    Failed {
        /// What went wrong, for people. The database cleans it and keeps it.
        error: Option<String>,
    },
}

/// Claims events, the lowest numbers first, under a name that was never used before.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim(client: &impl Ask, worker: &WorkerId, size: BatchSize) -> Result<Claim, ClaimError> {
    let processor = ProcessorId::fresh(worker);
    let arguments = [
        (&processor.as_str() as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT),
        (&i32::from(size.get()), Type::INT4),
    ];
    let rows = client.ask(CLAIM, &arguments).await?;
    claim_of(processor, &rows)
}

/// Claims events so that the order of each aggregate can be kept: heads, those that no unprocessed event of their aggregate comes
/// before, and at most so many followers in all, each directly behind one that the same claim brings. What would have to wait for
/// another's claim or delay is left alone.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim_in_order(
    client: &impl Ask,
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
    let rows = client.ask(CLAIM_IN_ORDER, &arguments).await?;
    claim_of(processor, &rows)
}

fn claim_of(processor: ProcessorId, rows: &[Row]) -> Result<Claim, ClaimError> {
    let taken_over: Option<&str> = match rows.first() {
        Some(row) => row.try_get("ended_claims")?,
        None => None,
    };
    let taken_over = taken_over.and_then(|count| count.parse().ok()).unwrap_or(0);
    Ok(Claim { processor, events: rows.iter().map(claimed).collect::<Result<_, _>>()?, taken_over })
}

/// Records how an event went.
///
/// # Errors
///
/// See [`CompleteError`]. A claim older than 5 minutes that nobody took over is still held.
pub async fn complete(
    client: &impl Ask,
    processor: &ProcessorId,
    id: EventId,
    outcome: &Outcome,
) -> Result<(), CompleteError> {
    let (success, error) = said(outcome);
    client
        .ask_one(
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

/// How one of several events went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The event.
    pub id: EventId,
    /// The name under which it is held.
    pub processor: ProcessorId,
    /// How it went.
    pub outcome: Outcome,
}

/// Records how several events went, in one statement if none is refused, else one by one. The answers are in the order given.
///
/// # Errors
///
/// For what is wrong with the call as a whole. See [`CompleteError`].
pub async fn complete_batch(
    client: &impl Ask,
    completions: &[Completion],
) -> Result<Vec<Result<(), CompleteError>>, CompleteError> {
    let ids: Vec<_> = completions.iter().map(|c| c.id.0).collect();
    let processors: Vec<_> = completions.iter().map(|c| c.processor.as_str()).collect();
    let (successes, errors): (Vec<_>, Vec<_>) = completions.iter().map(|c| said(&c.outcome)).unzip();
    let all = client
        .ask(
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
        Err(CompleteError::ClaimLost(_)) => {
            let mut ends = Vec::with_capacity(completions.len());
            for Completion { id, processor, outcome } in completions {
                match complete(client, processor, *id, outcome).await {
                    Err(CompleteError::Fault(fault)) => return Err(fault.into()),
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
/// See [`Fault`].
pub async fn next_due(client: &impl Ask) -> Result<Option<Duration>, Fault> {
    let row = client.ask_one(NEXT_DUE, &[]).await?;
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
/// See [`Fault`].
pub async fn earlier_unprocessed(client: &impl Ask, id: EventId) -> Result<Option<EventId>, Fault> {
    let rows = client.ask(EARLIER, &[(&id.0, Type::INT8)]).await?;
    rows.first().map(|row| Ok(EventId(row.try_get(0)?))).transpose()
}

/// Whether the next unprocessed event behind one of these, in its aggregate, is held by nobody.
///
/// # Errors
///
/// See [`Fault`].
pub async fn any_behind(client: &impl Ask, ids: &[EventId]) -> Result<bool, Fault> {
    let ids: Vec<_> = ids.iter().map(|id| id.0).collect();
    Ok(client.ask_one(BEHIND, &[(&ids, Type::INT8_ARRAY)]).await?.try_get(0)?)
}

fn said(outcome: &Outcome) -> (bool, Option<&str>) {
    match outcome {
        Outcome::Delivered => (true, None),
        Outcome::Failed { error } => (false, error.as_deref()),
    }
}

fn claimed(row: &Row) -> Result<Claimed, tokio_postgres::Error> {
    Ok(Claimed {
        id: EventId(row.try_get("id")?),
        event: Event {
            aggregate_type: row.try_get("aggregate_type")?,
            aggregate_id: row.try_get("aggregate_id")?,
            event_type: row.try_get("event_type")?,
            payload: row.try_get("payload")?,
        },
        retry_count: row.try_get("retry_count")?,
    })
}
