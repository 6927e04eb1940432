//! A small business beside the outbox, for demonstrations: a table of orders, people and programs who log in with
//! the roles they need and no more, and somebody who counts while they work.
//!
//! It knows the schema from outside. What it counts, it counts by itself, not by the views that it is shown beside.
//!
//! # Layout
//!
//! - this file: orders and their payments
//! - [`news`]: the events that tell of them
//! - [`profiles`]: what is known of whom they are for, as entries of metadata
//! - [`copies`]: the second database, where that is copied to

pub mod copies;
pub mod news;
pub mod profiles;

use std::collections::BTreeSet;

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, GenericClient};

/// The program that takes orders. May enqueue.
pub const TILL: &str = "till";
/// The programs that pay. May claim and complete, and read what they check at their start.
pub const RELAYER: &str = "relayer";
/// The person on duty. May resolve, redrive and set rails.
pub const DUTY: &str = "ana";
/// The console when it shows. May look.
pub const CONSOLE_READS: &str = "console_read";
/// The console when somebody acts there. May what the person on duty may.
pub const CONSOLE_ACTS: &str = "console_act";

const OPEN: &str = "
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
// A cast, so that no float comes near an amount.
const PLACE: &str = "insert into orders (order_id, participant_id, amount) values ($1, $2, $3::text::numeric)";
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
           count(*) filter (where a.error_code in ('OUTCOME_UNKNOWN', 'LEASE_EXPIRED')) as in_doubt,
           coalesce((extract(epoch from percentile_disc(0.5) within group (order by a.completed_at - a.created_at)
                     filter (where a.state = 'DISPATCHED')) * 1000)::int8, 0) as p50_ms,
           coalesce((extract(epoch from percentile_disc(0.99) within group (order by a.completed_at - a.created_at)
                     filter (where a.state = 'DISPATCHED')) * 1000)::int8, 0) as p99_ms
    from symphony.payment_outbox_attempts a";
// Whose worker died, then who was tried most often.
const EVENTFUL: &str = "
    select a.instruction_id
    from symphony.payment_outbox_attempts a
    group by a.instruction_id
    having bool_or(a.state = 'DISPATCHED')
    order by bool_or(a.state = 'ZOMBIE_REQUEUE') desc, count(*) desc, a.instruction_id
    limit 1";

/// What is counted while they work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Numbers {
    /// Outboxes ever made, by the numbers that were given out.
    pub enqueued: i64,
    /// Outboxes that have not ended.
    pub pending: i64,
    /// Those of them that a worker holds.
    pub in_flight: i64,
    /// How long ago the oldest of them was enqueued.
    pub oldest_ms: i64,
    /// Outboxes that ended well.
    pub dispatched: i64,
    /// Outboxes that ended badly.
    pub failed: i64,
    /// Attempts that were followed by another.
    pub retried: i64,
    /// Attempts after which nobody knew whether it was paid.
    pub in_doubt: i64,
    /// From the enqueue to the ledger, for the faster half of what was dispatched.
    pub p50_ms: i64,
    /// The same for all but the slowest hundredth.
    pub p99_ms: i64,
}

/// Opens the shop in a database with Symphony installed. For a superuser.
pub async fn open(superuser: &Client) -> Result<(), Error> {
    superuser.batch_execute(OPEN).await?;
    profiles::open(superuser).await
}

/// Writes an order: the business side of a transaction.
pub async fn place_order(
    till: &impl GenericClient,
    order_id: &str,
    participant_id: &str,
    amount: &str,
) -> Result<(), Error> {
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
        [(&order_id, Type::TEXT), (&participant_id, Type::TEXT), (&amount, Type::TEXT)];
    till.execute_typed(PLACE, &values).await.map(drop)
}

/// The ids of all orders that were committed.
pub async fn committed(client: &impl GenericClient) -> Result<BTreeSet<String>, Error> {
    client.query_typed(COMMITTED, &[]).await?.iter().map(|row| row.try_get(0)).collect()
}

/// Counts. For a superuser, because nobody else may see all of it.
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
        in_doubt: row.try_get("in_doubt")?,
        p50_ms: row.try_get("p50_ms")?,
        p99_ms: row.try_get("p99_ms")?,
    })
}

/// An instruction that was paid in the end and has much to tell.
pub async fn eventful(superuser: &impl GenericClient) -> Result<Option<String>, Error> {
    superuser.query_typed_opt(EVENTFUL, &[]).await?.map(|row| row.try_get(0)).transpose()
}
