//! What the shop tells others: an event with each order, in the same transaction.
//!
//! The aggregate of an event is whom the order is for. Paying them takes their next number and with it a lock until the commit, so the
//! events of one aggregate are committed in the order of their numbers, as strict order wants it.

use serde::Serialize;
use serde_json::json;
use symphony_outbox::event::Event;
use tokio_postgres::types::Type;
use tokio_postgres::{Error, GenericClient};

use crate::kit::audit::events;

// What is processed is not looked at one by one: there are many, and the demo counts twice a second.
const NUMBERS: &str = "
    select (select count(*) from m10_recovery.outbox o) as committed,
           count(*) as waiting,
           coalesce(extract(epoch from now() - min(o.created_at)) * 1000, 0)::int8 as oldest_ms
    from m10_recovery.outbox o
    where o.processed_at is null";
const TOLD: &str = "
    select o.id, o.aggregate_type, o.aggregate_type || '/' || o.aggregate_id as key, o.payload ->> 'order' as order_id,
           o.processed_at is not null as processed, o.retry_count
    from m10_recovery.outbox o
    order by o.id";
// The contract gives a dead worker's events back after 5 minutes.
const BURY: &str = "
    update m10_recovery.outbox
    set claimed_at = claimed_at - interval '1 hour'
    where processed_at is null
      and claimed_at > now() - interval '5 minutes'
      and split_part(claimed_by, '#', 1) = any ($1)";

/// The event that tells of an order.
pub fn of_order(aggregate_type: &str, participant_id: &str, event_type: &str, order_id: &str) -> Event {
    Event {
        aggregate_type: aggregate_type.to_owned(),
        aggregate_id: participant_id.to_owned(),
        event_type: event_type.to_owned(),
        payload: json!({ "order": order_id }).into(),
    }
}

/// What is counted while events are carried.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Events that were committed.
    pub committed: i64,
    /// Those of them that are not completed.
    pub waiting: i64,
    /// How long ago the oldest of those was committed, about.
    pub oldest_ms: i64,
}

/// An event as the table has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Told {
    /// Its number and its aggregate.
    pub event: events::Event,
    /// The type of its aggregate, by which it is routed.
    pub aggregate_type: String,
    /// The order that it tells of.
    pub order_id: Option<String>,
    /// Whether it is completed.
    pub processed: bool,
    /// How often it was handed back.
    pub retries: i32,
}

/// Counts. For a superuser.
pub async fn numbers(superuser: &impl GenericClient) -> Result<Numbers, Error> {
    let row = superuser.query_typed_one(NUMBERS, &[]).await?;
    Ok(Numbers {
        committed: row.try_get("committed")?,
        waiting: row.try_get("waiting")?,
        oldest_ms: row.try_get("oldest_ms")?,
    })
}

/// All events, by number. For a superuser.
pub async fn told(superuser: &impl GenericClient) -> Result<Vec<Told>, Error> {
    let told = |row: &tokio_postgres::Row| {
        Ok(Told {
            event: events::Event { id: row.try_get("id")?, key: row.try_get("key")? },
            aggregate_type: row.try_get("aggregate_type")?,
            order_id: row.try_get("order_id")?,
            processed: row.try_get("processed")?,
            retries: row.try_get("retry_count")?,
        })
    };
    superuser.query_typed(TOLD, &[]).await?.iter().map(told).collect()
}

/// Makes the claims of dead workers older than 5 minutes, so that nobody who watches has to wait for it; how many those were. Only for
/// those that are known to be dead. For a superuser.
pub async fn bury(superuser: &impl GenericClient, workers: &[String]) -> Result<u64, Error> {
    superuser.execute_typed(BURY, &[(&workers, Type::TEXT_ARRAY)]).await
}
