//! The calls of a worker of the event lane: claim and complete.
//!
//! Each call is one transaction: run it on a client, not inside a transaction. The login needs the role
//! `symphony_executor`. When to claim, and what a broker's answer means, is the worker's decision.

use std::time::Duration;

use serde::Serialize;
use tokio_postgres::Row;
use tokio_postgres::types::{Json, Type};

use super::{Event, EventId, ProcessorId};
use crate::epoch::{OpenedEpoch, claim_epoch, opened_epoch};
use crate::error::{ClaimError, CompleteError, DatabaseError, ErrorDetails};
use crate::executor::Executor;
use crate::{BatchSize, Payload, WorkerId};

/// How many claims of others were taken over is in a setting of the transaction, which the claim sets; so are its epoch,
/// and the one that it opened. The first row carries them. The left join keeps that row if the claim returns nothing.
macro_rules! select_claimed {
    ($call:literal) => {
        concat!(
            "select c.id, c.aggregate_type, c.aggregate_id, c.event_type, c.payload, c.retry_count, \
                    case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.taken_over_claims', true) end as taken_over, \
                    case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.opened_epoch', true) end as opened_epoch, \
                    case when coalesce(c.ordinality, 1) = 1 then current_setting('symphony.epoch', true) end as epoch \
             from (values (1)) one \
             left join ",
            $call,
            " with ordinality c on true"
        )
    };
}

const CLAIM: &str = select_claimed!("m10_recovery.claim_outbox_events($1, $2)");
const CLAIM_IN_ORDER: &str = select_claimed!("symphony.claim_events_in_order($1, $2, $3)");
const CLAIM_BY_SINK: &str = select_claimed!("symphony.claim_events_by_sink($1, $2, $3, $4)");
const CLAIM_NEWEST: &str = select_claimed!("symphony.claim_newest_event($1)");
const COMPLETE: &str = "select m10_recovery.complete_outbox_event($1, $2, $3, $4)";
const COMPLETE_ALL: &str = "\
    select c.refusal, c.refusal_message, c.next_event_id, c.next_is_claimed \
    from symphony.complete_event_batch($1, $2, $3, $4, $5) c \
    order by c.position";
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
/// Events under one claim, by number. Another worker may take over the claim after 5 minutes.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The name of the claim, which completes them.
    pub processor: ProcessorId,
    /// The claimed events; empty if none was due.
    pub events: Vec<Claimed>,
    /// How many of them were taken over from an expired claim.
    pub taken_over: usize,
    /// The epoch in which it was made.
    pub epoch: Option<i64>,
    /// The epoch that the claim opened, because the server is not the one of the newest epoch.
    pub opened_epoch: Option<OpenedEpoch>,
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

/// A route of a claim, and how many events of its sink the claim may return. The first that matches an event decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClaimRoute<'a> {
    /// The aggregate type, or `*`.
    pub aggregate_type: &'a str,
    /// The event type, or `*`.
    pub event_type: &'a str,
    /// The sink.
    pub sink: &'a str,
    /// At most so many events of the sink, by all of its routes.
    pub limit: u32,
}

/// Claims events of each sink up to its limit, whatever waits for the others. With `in_order` it claims first events of
/// aggregates alone.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim_by_sink(
    client: &impl Executor,
    worker: &WorkerId,
    size: BatchSize,
    in_order: bool,
    routes: &[ClaimRoute<'_>],
) -> Result<Claim, ClaimError> {
    let processor = ProcessorId::fresh(worker);
    let arguments = [
        (&processor.as_str() as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT),
        (&i32::from(size.get()), Type::INT4),
        (&in_order, Type::BOOL),
        (&Json(routes), Type::JSONB),
    ];
    let rows = client.fetch_all(CLAIM_BY_SINK, &arguments).await?;
    claim_of(processor, &rows)
}

/// Claims the newest event that has not failed and has no earlier unprocessed event of its aggregate: it shows whether a
/// failing sink works again.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn claim_newest(client: &impl Executor, worker: &WorkerId) -> Result<Claim, ClaimError> {
    let processor = ProcessorId::fresh(worker);
    let rows = client.fetch_all(CLAIM_NEWEST, &[(&processor.as_str(), Type::TEXT)]).await?;
    claim_of(processor, &rows)
}

fn claim_of(processor: ProcessorId, rows: &[Row]) -> Result<Claim, ClaimError> {
    let Some(first) = rows.first() else {
        return Ok(Claim { processor, events: Vec::new(), taken_over: 0, epoch: None, opened_epoch: None });
    };
    let taken_over: Option<&str> = first.try_get("taken_over")?;
    let taken_over = taken_over.and_then(|count| count.parse().ok()).unwrap_or(0);
    let epoch = claim_epoch(first.try_get("epoch")?);
    let opened_epoch = opened_epoch(first.try_get("opened_epoch")?);
    // A claim that brings nothing leaves one row without an event.
    let nothing = first.try_get::<_, Option<i64>>("id")?.is_none();
    let events = if nothing { Vec::new() } else { rows.iter().map(claimed).collect::<Result<_, _>>()? };
    Ok(Claim { processor, events, taken_over, epoch, opened_epoch })
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

/// The result of one completion of a batch.
#[derive(Debug)]
pub struct Completed {
    /// The error, if nothing was changed.
    pub refused: Option<CompleteError>,
    /// The first unprocessed event of the aggregate, if it was asked for and there is one.
    pub next: Option<NextEvent>,
}

/// The first unprocessed event of an aggregate, after a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextEvent {
    /// Its number.
    pub id: EventId,
    /// Whether it is under a claim.
    pub is_claimed: bool,
}

/// Records the outcomes of 1 to 1000 events in one call. Each is decided separately: a refused one does not undo the
/// others. The results are in the order of the completions. With `with_next` each names the next event of its aggregate.
///
/// # Errors
///
/// If the call as a whole failed and nothing was recorded. See [`CompleteError`].
pub async fn complete_batch(
    client: &impl Executor,
    completions: &[Completion],
    with_next: bool,
) -> Result<Vec<Completed>, CompleteError> {
    let ids: Vec<_> = completions.iter().map(|c| c.id.0).collect();
    let processors: Vec<_> = completions.iter().map(|c| c.processor.as_str()).collect();
    let (successes, errors): (Vec<_>, Vec<_>) = completions.iter().map(|c| success_and_error(&c.outcome)).unzip();
    let rows = client
        .fetch_all(
            COMPLETE_ALL,
            &[
                (&ids, Type::INT8_ARRAY),
                (&processors, Type::TEXT_ARRAY),
                (&successes, Type::BOOL_ARRAY),
                (&errors, Type::TEXT_ARRAY),
                (&with_next, Type::BOOL),
            ],
        )
        .await?;
    Ok(rows.iter().map(completed).collect::<Result<_, _>>()?)
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

fn success_and_error(outcome: &Outcome) -> (bool, Option<&str>) {
    match outcome {
        Outcome::Delivered => (true, None),
        Outcome::Failed { error } => (false, error.as_deref()),
    }
}

fn completed(row: &Row) -> Result<Completed, tokio_postgres::Error> {
    let refusal: Option<String> = row.try_get("refusal")?;
    let refused = match refusal {
        Some(refusal) => Some(ErrorDetails::of_row(refusal, row.try_get("refusal_message")?).into()),
        None => None,
    };
    let next = match row.try_get("next_event_id")? {
        Some(id) => Some(NextEvent { id: EventId(id), is_claimed: row.try_get("next_is_claimed")? }),
        None => None,
    };
    Ok(Completed { refused, next })
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
