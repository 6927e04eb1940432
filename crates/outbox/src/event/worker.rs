//! What a worker asks of the database: events, and to record how they went.
//!
//! Every call is a transaction of its own; run them on a client, not inside a transaction. For a login with the role
//! `symphony_executor`. Knows no broker and decides nothing: not when to claim, nor what an answer means.

use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use super::{Event, EventId, ProcessorId};
use crate::error::event::{ClaimError, CompleteError};
use crate::{BatchSize, WorkerId};

const CLAIM: &str = "\
    select id, aggregate_type, aggregate_id, event_type, payload, retry_count \
    from m10_recovery.claim_outbox_events($1, $2)";
const COMPLETE: &str = "select m10_recovery.complete_outbox_event($1, $2, $3, $4)";

/// Events under one claim, by number. The claim may be taken over by others after 5 minutes.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The name under which they are held, which completes them.
    pub processor: ProcessorId,
    /// What is held; nothing where nothing was claimable.
    pub events: Vec<Claimed>,
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
pub async fn claim(client: &impl GenericClient, worker: &WorkerId, size: BatchSize) -> Result<Claim, ClaimError> {
    let processor = ProcessorId::fresh(worker);
    let arguments = [
        (&processor.as_str() as &(dyn tokio_postgres::types::ToSql + Sync), Type::TEXT),
        (&i32::from(size.get()), Type::INT4),
    ];
    let rows = client.query_typed(CLAIM, &arguments).await?;
    let events = rows.iter().map(claimed).collect::<Result<_, _>>()?;
    Ok(Claim { processor, events })
}

/// Records how an event went.
///
/// # Errors
///
/// See [`CompleteError`]. A claim older than 5 minutes that nobody took over is still held.
pub async fn complete(
    client: &impl GenericClient,
    processor: &ProcessorId,
    id: EventId,
    outcome: &Outcome,
) -> Result<(), CompleteError> {
    let (success, error) = match outcome {
        Outcome::Delivered => (true, None),
        Outcome::Failed { error } => (false, error.as_deref()),
    };
    client
        .query_typed_one(
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
