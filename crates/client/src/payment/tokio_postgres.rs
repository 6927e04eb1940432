//! Enqueues and cancels payments over tokio-postgres, and reads their outcome.
//!
//! Pass the transaction that writes the business rows: the payment is committed with them or not at all. The login
//! needs the role `symphony_ingest`.
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let database = symphony_testkit::test_database::Server::from_env().await?.database().await?;
//! # let mut client = database.connect().await?;
//! # client.batch_execute("
//! #     create table orders (id text primary key, total_cents bigint not null);
//! #     select symphony.register_payment_rail('sepa', '{}', 'docs', 'an example')").await?;
//! use serde_json::json;
//! use symphony_client::payment::{self, Instruction};
//!
//! let payload = json!({ "amount": "10.50", "currency": "EUR" });
//! let instruction = Instruction::new("order-1", "shop-7", "order-1/pay", "sepa", payload);
//!
//! let transaction = client.transaction().await?;
//! transaction.execute("insert into orders values ($1, $2)", &[&"order-1", &1050_i64]).await?;
//! let enqueued = payment::tokio_postgres::enqueue(&transaction, &instruction).await?;
//! transaction.commit().await?;
//!
//! assert_eq!(enqueued.sequence_id, 1);
//! assert!(!enqueued.replayed);
//! # let rows = client.query_one("select count(*) from symphony.payment_outbox_pending, orders", &[]).await?;
//! # assert_eq!(rows.get::<_, i64>(0), 1);
//! # drop(client);
//! # database.close().await?;
//! # Ok(())
//! # }
//! ```

use tokio_postgres::types::{FromSql, Json, ToSql, Type, accepts};
use tokio_postgres::{GenericClient, Row, Statement};

use super::instruction::{Columns, sql};
use super::{Cancelled, Enqueued, Instruction, PaymentOutcome, PaymentState};
use crate::error::{CancelError, DatabaseError, EnqueueError};

const ENQUEUE_TYPES: [Type; 6] = [Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT, Type::JSONB, Type::TIMESTAMPTZ];
const ENQUEUE_BATCH_TYPES: [Type; 6] = [
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::TEXT_ARRAY,
    Type::JSONB_ARRAY,
    Type::TIMESTAMPTZ_ARRAY,
];

/// Enqueues one instruction, or returns the outbox row that its idempotency key already has.
///
/// The transaction locks the participant's sequence until it ends: other producers of that participant wait. Enqueue
/// last, then commit.
///
/// # Errors
///
/// See [`EnqueueError`]. The transaction has then failed, as after any PostgreSQL error.
pub async fn enqueue(client: &impl GenericClient, instruction: &Instruction) -> Result<Enqueued, EnqueueError> {
    let payload = Json(instruction.payload.raw());
    let row =
        client.query_typed_one(sql::ENQUEUE, &typed(arguments(instruction, &payload), ENQUEUE_TYPES)).await?;
    enqueued(&row)
}

/// Enqueues 1 to 500 instructions in one statement: all of them, or none and an error.
///
/// The results are in the order of the instructions. A repeated instruction with the same key is a replay of the first.
///
/// # Errors
///
/// See [`EnqueueError`]. An empty batch and one of more than 500 instructions are
/// [`InvalidArgument`](EnqueueError::InvalidArgument).
pub async fn enqueue_batch(
    client: &impl GenericClient,
    instructions: &[Instruction],
) -> Result<Vec<Enqueued>, EnqueueError> {
    let columns = Columns::of(instructions);
    let payloads: Vec<_> = columns.payloads.iter().map(Json).collect();
    let rows = client
        .query_typed(sql::ENQUEUE_BATCH, &typed(batch_arguments(&columns, &payloads), ENQUEUE_BATCH_TYPES))
        .await?;
    rows.iter().map(enqueued).collect()
}

/// Sets the W3C `traceparent` of what this transaction enqueues from now on, so that the dispatch joins the trace of
/// the request that caused it.
///
/// It has no effect outside a transaction. The enqueue ignores a text that is not a `traceparent`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn set_traceparent(client: &impl GenericClient, traceparent: &str) -> Result<(), DatabaseError> {
    client.query_typed_one(sql::SET_TRACEPARENT, &[(&traceparent, Type::TEXT)]).await?;
    Ok(())
}

/// Cancels a payment that was never sent: it ends as `FAILED` with the error code `CANCELLED`, in this transaction.
///
/// The audit log keeps the actor and the reason. The idempotency key stays used. The transaction locks the payment until it
/// ends: no relayer claims it meanwhile, and after a rollback it is due as before.
///
/// # Errors
///
/// See [`CancelError`]. The transaction has then failed, as after any PostgreSQL error.
pub async fn cancel(
    client: &impl GenericClient,
    instruction_id: &str,
    idempotency_key: &str,
    actor: &str,
    reason: &str,
) -> Result<Cancelled, CancelError> {
    let row = client
        .query_typed_one(
            sql::CANCEL,
            &[
                (&instruction_id, Type::TEXT),
                (&idempotency_key, Type::TEXT),
                (&actor, Type::TEXT),
                (&reason, Type::TEXT),
            ],
        )
        .await?;
    Ok(Cancelled { outbox_id: row.try_get("outbox_id")?, cancelled_at: row.try_get("cancelled_at")? })
}

/// What became of a payment; `None` if no payment of this instruction has this idempotency key.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn outcome(
    client: &impl GenericClient,
    instruction_id: &str,
    idempotency_key: &str,
) -> Result<Option<PaymentOutcome>, DatabaseError> {
    let rows =
        client.query_typed(sql::OUTCOME, &[(&instruction_id, Type::TEXT), (&idempotency_key, Type::TEXT)]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    Ok(Some(PaymentOutcome {
        outbox_id: row.try_get("outbox_id")?,
        state: row.try_get("state")?,
        attempts: row.try_get("attempts")?,
        outcome_unknown: row.try_get("outcome_unknown")?,
        error_code: row.try_get("error_code")?,
        rail_code: row.try_get("rail_code")?,
        rail_reference: row.try_get("rail_reference")?,
        resolution: row.try_get("resolution")?,
        created_at: row.try_get("created_at")?,
        last_attempt_at: row.try_get("last_attempt_at")?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        ended_at: row.try_get("ended_at")?,
    }))
}

/// The enqueue calls as prepared statements of one connection, which the server parses and plans once.
///
/// Use it on a connection that keeps its session: your own, or one from a pool inside your program. Behind a pooler in
/// transaction mode, call [`enqueue`] and [`enqueue_batch`], unless the pooler tracks prepared statements (PgBouncer
/// 1.21 and later do, with `max_prepared_statements`).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let database = symphony_testkit::test_database::Server::from_env().await?.database().await?;
/// # let mut client = database.connect().await?;
/// # client.batch_execute("select symphony.register_payment_rail('sepa', '{}', 'docs', 'an example')").await?;
/// # let payload = serde_json::json!({ "amount": "10.50", "currency": "EUR" });
/// # let instruction = symphony_client::payment::Instruction::new("order-1", "shop-7", "order-1/pay", "sepa", payload);
/// use symphony_client::payment::tokio_postgres::Prepared;
///
/// // Once per connection:
/// let prepared = Prepared::on(&client).await?;
/// // For each payment:
/// let transaction = client.transaction().await?;
/// let enqueued = prepared.enqueue(&transaction, &instruction).await?;
/// transaction.commit().await?;
/// # assert_eq!(enqueued.sequence_id, 1);
/// # let again = prepared.enqueue_batch(&client, &[instruction]).await?;
/// # assert!(again[0].replayed && again[0].outbox_id == enqueued.outbox_id);
/// # drop(client);
/// # database.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Prepared {
    enqueue: Statement,
    enqueue_batch: Statement,
}

impl Prepared {
    /// Prepares the statements on this connection. They work on no other.
    ///
    /// # Errors
    ///
    /// See [`DatabaseError`].
    pub async fn on(client: &impl GenericClient) -> Result<Self, DatabaseError> {
        Ok(Self {
            enqueue: client.prepare_typed(sql::ENQUEUE, &ENQUEUE_TYPES).await?,
            enqueue_batch: client.prepare_typed(sql::ENQUEUE_BATCH, &ENQUEUE_BATCH_TYPES).await?,
        })
    }

    /// Does the same as [`enqueue`]. Pass the connection on which the statements were prepared, or its transaction.
    ///
    /// # Errors
    ///
    /// See [`EnqueueError`]. The transaction has then failed, as after any PostgreSQL error.
    pub async fn enqueue(
        &self,
        client: &impl GenericClient,
        instruction: &Instruction,
    ) -> Result<Enqueued, EnqueueError> {
        let payload = Json(instruction.payload.raw());
        let row = client.query_one(&self.enqueue, &arguments(instruction, &payload)).await?;
        enqueued(&row)
    }

    /// Does the same as [`enqueue_batch`]. Pass the connection on which the statements were prepared, or its
    /// transaction.
    ///
    /// # Errors
    ///
    /// See [`EnqueueError`]. An empty batch and one of more than 500 instructions are
    /// [`InvalidArgument`](EnqueueError::InvalidArgument).
    pub async fn enqueue_batch(
        &self,
        client: &impl GenericClient,
        instructions: &[Instruction],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let columns = Columns::of(instructions);
        let payloads: Vec<_> = columns.payloads.iter().map(Json).collect();
        let rows = client.query(&self.enqueue_batch, &batch_arguments(&columns, &payloads)).await?;
        rows.iter().map(enqueued).collect()
    }
}

type Argument<'a> = &'a (dyn ToSql + Sync);

fn arguments<'a>(instruction: &'a Instruction, payload: Argument<'a>) -> [Argument<'a>; 6] {
    let Instruction { instruction_id, participant_id, idempotency_key, rail_type, not_before, .. } = instruction;
    [instruction_id, participant_id, idempotency_key, rail_type, payload, not_before]
}

fn batch_arguments<'a>(columns: &'a Columns<'_>, payloads: Argument<'a>) -> [Argument<'a>; 6] {
    let Columns { instruction_ids, participant_ids, idempotency_keys, rail_types, not_befores, .. } = columns;
    [instruction_ids, participant_ids, idempotency_keys, rail_types, payloads, not_befores]
}

fn typed(arguments: [Argument<'_>; 6], types: [Type; 6]) -> Vec<(Argument<'_>, Type)> {
    arguments.into_iter().zip(types).collect()
}

fn enqueued(row: &Row) -> Result<Enqueued, EnqueueError> {
    Ok(Enqueued {
        outbox_id: row.try_get("outbox_id")?,
        sequence_id: row.try_get("sequence_id")?,
        created_at: row.try_get("created_at")?,
        replayed: row.try_get("replayed")?,
    })
}

impl<'a> FromSql<'a> for PaymentState {
    fn from_sql(of: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Ok(<&str>::from_sql(of, raw)?.parse()?)
    }

    accepts!(TEXT);
}
