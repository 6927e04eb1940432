//! A small business beside the outbox, for demonstrations: a table of orders, people and programs who log in with
//! the roles they need and no more, and an auditor who counts at the end.
//!
//! It knows the schema from outside. What it counts, it counts by itself, not by the views that it checks.

use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, GenericClient};

/// The program that takes orders. May enqueue.
pub const TILL: &str = "till";
/// The programs that pay. May claim and complete.
pub const WORKERS: [&str; 2] = ["worker_a", "worker_b"];
/// The person on duty. May resolve, redrive and set rails.
pub const DUTY: &str = "ana";

const OPEN: &str = "
    create table orders (order_id text primary key, amount numeric not null check (amount > 0));
    create role till login;
    grant insert, select on orders to till;
    grant symphony_ingest to till;
    create role worker_a login;
    create role worker_b login;
    grant symphony_executor to worker_a, worker_b;
    create role ana login;
    grant symphony_operator to ana;";
// A cast, so that no float comes near an amount.
const PLACE: &str = "insert into orders (order_id, amount) values ($1, $2::text::numeric)";
const REWRITE: &str = "update symphony.payment_outbox_attempts set state = 'DISPATCHED' where state = 'FAILED'";
const AUDIT: &str = "
    select (select count(*) from orders) as orders,
           (select coalesce(sum(s.next_sequence_id - 1), 0)::int8 from symphony.participant_outbox_sequences s) as enqueued,
           (select count(*) from symphony.payment_outbox_attempts a where a.state = 'DISPATCHED') as dispatched,
           (select count(*) from symphony.payment_outbox_attempts a where a.state = 'FAILED') as failed,
           (select count(*) from symphony.payment_outbox_pending p) as pending,
           (select count(*) from (select from symphony.payment_outbox_attempts a where a.state in ('DISPATCHED', 'FAILED')
                                  group by a.outbox_id having count(*) > 1) t) as ended_twice,
           (select count(*) from (select from symphony.payment_outbox_attempts a where a.state = 'DISPATCHED'
                                  group by a.instruction_id, a.idempotency_key having count(*) > 1) t) as paid_twice";

/// What the auditor counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Orders of the business.
    pub orders: i64,
    /// Outboxes ever made, by the numbers that were given out.
    pub enqueued: i64,
    /// Outboxes that ended well, by the ledger.
    pub dispatched: i64,
    /// Outboxes that ended badly, by the ledger.
    pub failed: i64,
    /// Outboxes that have not ended.
    pub pending: i64,
    /// Outboxes with more than one end.
    pub ended_twice: i64,
    /// Keys under which more than one payment went out.
    pub paid_twice: i64,
}

impl Audit {
    /// Whether nothing was lost and nothing happened twice.
    pub fn adds_up(&self) -> bool {
        self.enqueued == self.dispatched + self.failed + self.pending
            && self.ended_twice == 0
            && self.paid_twice == 0
    }
}

/// Opens the shop in a database with Symphony installed. For a superuser.
pub async fn open(superuser: &Client) -> Result<(), Error> {
    superuser.batch_execute(OPEN).await
}

/// Writes an order: the business side of a transaction.
pub async fn place_order(till: &impl GenericClient, order_id: &str, amount: &str) -> Result<(), Error> {
    till.execute_typed(PLACE, &[(&order_id, Type::TEXT), (&amount, Type::TEXT)]).await.map(drop)
}

/// Tries to make history look better. Refused to everyone.
pub async fn rewrite_history(superuser: &Client) -> Result<u64, Error> {
    superuser.execute_typed(REWRITE, &[]).await
}

/// Counts. For a superuser, because nobody else may see all of it.
pub async fn audit(superuser: &Client) -> Result<Audit, Error> {
    let row = superuser.query_typed_one(AUDIT, &[]).await?;
    Ok(Audit {
        orders: row.try_get("orders")?,
        enqueued: row.try_get("enqueued")?,
        dispatched: row.try_get("dispatched")?,
        failed: row.try_get("failed")?,
        pending: row.try_get("pending")?,
        ended_twice: row.try_get("ended_twice")?,
        paid_twice: row.try_get("paid_twice")?,
    })
}
