//! The events of the shop: one per order, in the same transaction.
//!
//! The aggregate of an event is the participant of the order. The payment takes the next sequence number of that
//! participant and locks it until the commit, so that events of one aggregate commit in the order of their ids.

use serde::Serialize;
use serde_json::json;
use symphony_db::event::Event;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, GenericClient};

use crate::reconciliation::events;

// Does not scan processed events: there are many, and the demo counts twice a second.
const NUMBERS: &str = "
    select (select count(*) from m10_recovery.outbox o) as committed,
           count(*) as waiting,
           coalesce(extract(epoch from now() - min(o.created_at)) * 1000, 0)::int8 as oldest_ms
    from m10_recovery.outbox o
    where o.processed_at is null";
const EVENTS: &str = "
    select o.id, o.aggregate_type, o.aggregate_type || '/' || o.aggregate_id as key, o.payload ->> 'order' as order_id,
           o.processed_at is not null as processed, o.retry_count
    from m10_recovery.outbox o
    order by o.id";
// By contract a claim expires after 5 minutes.
const EXPIRE_CLAIMS: &str = "
    update m10_recovery.outbox
    set claimed_at = claimed_at - interval '1 hour'
    where processed_at is null
      and claimed_at > now() - interval '5 minutes'
      and split_part(claimed_by, '#', 1) = any ($1)";

/// The event of an order.
pub fn of_order(aggregate_type: &str, participant_id: &str, event_type: &str, order_id: &str) -> Event {
    Event::new(aggregate_type, participant_id, event_type, json!({ "order": order_id }))
}

/// Counts of the event lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Events that were committed.
    pub committed: i64,
    /// Events that are not processed.
    pub waiting: i64,
    /// The age of the oldest unprocessed event.
    pub oldest_ms: i64,
}

/// A row of the event outbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedEvent {
    /// Its id and its aggregate.
    pub event: events::Event,
    /// The type of its aggregate, by which it is routed.
    pub aggregate_type: String,
    /// The order of the event.
    pub order_id: Option<String>,
    /// Whether it is completed.
    pub processed: bool,
    /// How often it failed.
    pub retries: i32,
}

/// Reads the counts. For a superuser.
pub async fn numbers(superuser: &impl GenericClient) -> Result<Numbers, Error> {
    let row = superuser.query_typed_one(NUMBERS, &[]).await?;
    Ok(Numbers {
        committed: row.try_get("committed")?,
        waiting: row.try_get("waiting")?,
        oldest_ms: row.try_get("oldest_ms")?,
    })
}

/// All events, by id. For a superuser.
pub async fn committed(superuser: &impl GenericClient) -> Result<Vec<CommittedEvent>, Error> {
    let event = |row: &tokio_postgres::Row| {
        Ok(CommittedEvent {
            event: events::Event { id: row.try_get("id")?, key: row.try_get("key")? },
            aggregate_type: row.try_get("aggregate_type")?,
            order_id: row.try_get("order_id")?,
            processed: row.try_get("processed")?,
            retries: row.try_get("retry_count")?,
        })
    };
    superuser.query_typed(EVENTS, &[]).await?.iter().map(event).collect()
}

/// Lets the claims of these dead workers expire now, so that the demo need not wait 5 minutes. Returns how many.
/// For a superuser.
pub async fn expire_claims(superuser: &impl GenericClient, workers: &[String]) -> Result<u64, Error> {
    superuser.execute_typed(EXPIRE_CLAIMS, &[(&workers, Type::TEXT_ARRAY)]).await
}
