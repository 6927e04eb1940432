//! A sample shop that uses the outbox, for the demo: a table of orders, and logins with the roles that they need.
//!
//! It reads the tables directly, independently of the views that the demo shows.
//!
//! # Layout
//!
//! - this file: orders and their payments
//! - [`events`]: one event per order
//! - [`metadata`]: one profile per participant, published as metadata
//! - [`second_store`]: the second database, which receives the metadata

pub mod events;
pub mod metadata;
pub mod second_store;

use std::collections::BTreeSet;

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, GenericClient};

/// The login of the producer.
pub const PRODUCER: &str = "till";
/// The login of the relayers.
pub const RELAYER: &str = "relayer";
/// The login of the operator.
pub const OPERATOR: &str = "ana";
/// The login with which the console reads.
pub const CONSOLE_READS: &str = "console_read";
/// The login with which the console acts as an operator.
pub const CONSOLE_ACTS: &str = "console_act";

const CREATE: &str = "
    create table orders (
      order_id       text        primary key,
      participant_id text        not null,
      amount         numeric     not null check (amount > 0),
      ordered_at     timestamptz not null default now());
    create role till login;
    grant insert, select on orders to till;
    grant symphony_ingest to till;
    create role relayer login;
    grant symphony_executor to relayer;
    create role ana login;
    grant symphony_operator to ana;
    create role console_read login;
    grant symphony_readonly, symphony_auditor to console_read;
    create role console_act login;
    grant symphony_operator to console_act;";
// The cast from text avoids floating-point numbers.
const INSERT_ORDER: &str =
    "insert into orders (order_id, participant_id, amount) values ($1, $2, $3::text::numeric)";
const COMMITTED: &str = "select o.order_id from orders o";
const NUMBERS: &str = "
    select (select coalesce(sum(s.next_sequence_id - 1), 0)::int8 from symphony.participant_outbox_sequences s) as enqueued,
           (select count(*) from symphony.payment_outbox_pending p) as pending,
           (select count(*) from symphony.payment_outbox_pending p where p.lease_expires_at > now()) as in_flight,
           (select coalesce(extract(epoch from now() - min(p.created_at)) * 1000, 0)::int8
            from symphony.payment_outbox_pending p) as oldest_ms,
           count(*) filter (where a.state = 'DISPATCHED') as dispatched,
           count(*) filter (where a.state = 'FAILED') as failed,
           count(*) filter (where a.state in ('RETRYABLE', 'ZOMBIE_REQUEUE')) as retried,
           count(*) filter (where a.error_code in ('OUTCOME_UNKNOWN', 'LEASE_EXPIRED')) as unknown_outcomes,
           coalesce((extract(epoch from percentile_disc(0.5) within group (order by a.completed_at - a.created_at)
                     filter (where a.state = 'DISPATCHED')) * 1000)::int8, 0) as p50_ms,
           coalesce((extract(epoch from percentile_disc(0.99) within group (order by a.completed_at - a.created_at)
                     filter (where a.state = 'DISPATCHED')) * 1000)::int8, 0) as p99_ms
    from symphony.payment_outbox_attempts a";
// First an expired lease, then the most attempts.
const MOST_ATTEMPTS: &str = "
    select a.instruction_id
    from symphony.payment_outbox_attempts a
    group by a.instruction_id
    having bool_or(a.state = 'DISPATCHED')
    order by bool_or(a.state = 'ZOMBIE_REQUEUE') desc, count(*) desc, a.instruction_id
    limit 1";

/// Counts of the payment lane.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Outboxes ever enqueued, by the sequence counters.
    pub enqueued: i64,
    /// Outboxes that have not ended.
    pub pending: i64,
    /// Those with a live lease.
    pub in_flight: i64,
    /// The age of the oldest pending outbox.
    pub oldest_ms: i64,
    /// Outboxes that ended as DISPATCHED.
    pub dispatched: i64,
    /// Outboxes that ended as FAILED.
    pub failed: i64,
    /// Attempts that were retried.
    pub retried: i64,
    /// Attempts with an unknown outcome.
    pub unknown_outcomes: i64,
    /// Median time from the enqueue to the ledger.
    pub p50_ms: i64,
    /// The 99th percentile of the same.
    pub p99_ms: i64,
}

/// Creates the tables and logins of the shop in a database with Symphony installed. For a superuser.
pub async fn create(superuser: &Client) -> Result<(), Error> {
    superuser.batch_execute(CREATE).await?;
    metadata::create(superuser).await
}

/// Inserts an order: the business row of a transaction.
pub async fn place_order(
    producer: &impl GenericClient,
    order_id: &str,
    participant_id: &str,
    amount: &str,
) -> Result<(), Error> {
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&order_id, Type::TEXT), (&participant_id, Type::TEXT), (&amount, Type::TEXT)];
    producer.execute_typed(INSERT_ORDER, &values).await.map(drop)
}

/// The ids of all orders that were committed.
pub async fn committed(client: &impl GenericClient) -> Result<BTreeSet<String>, Error> {
    client.query_typed(COMMITTED, &[]).await?.iter().map(|row| row.try_get(0)).collect()
}

/// Reads the counts. For a superuser, because no other role may read all tables.
pub async fn numbers(superuser: &impl GenericClient) -> Result<Numbers, Error> {
    let row = superuser.query_typed_one(NUMBERS, &[]).await?;
    Ok(Numbers {
        enqueued: row.try_get("enqueued")?,
        pending: row.try_get("pending")?,
        in_flight: row.try_get("in_flight")?,
        oldest_ms: row.try_get("oldest_ms")?,
        dispatched: row.try_get("dispatched")?,
        failed: row.try_get("failed")?,
        retried: row.try_get("retried")?,
        unknown_outcomes: row.try_get("unknown_outcomes")?,
        p50_ms: row.try_get("p50_ms")?,
        p99_ms: row.try_get("p99_ms")?,
    })
}

/// The dispatched instruction with the most attempts, to show its timeline.
pub async fn most_attempted(superuser: &impl GenericClient) -> Result<Option<String>, Error> {
    superuser.query_typed_opt(MOST_ATTEMPTS, &[]).await?.map(|row| row.try_get(0)).transpose()
}
