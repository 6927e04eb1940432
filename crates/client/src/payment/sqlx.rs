//! Enqueues and cancels payments over sqlx, and reads their outcome, with the same calls as [`tokio_postgres`](mod@super::tokio_postgres).
//!
//! Pass the transaction that writes the business rows (`&mut transaction`): the payment is committed with them or not
//! at all. No statement stays prepared on the connection, so a pooler in transaction mode may sit in between, as long
//! as the caller is in a transaction. The login needs the role `symphony_ingest`.
//!
//! ```
//! # use sqlx::Connection;
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let database = symphony_testkit::test_database::Server::from_env().await?.database().await?;
//! # let mut connection = sqlx::PgConnection::connect(&database.url()).await?;
//! # sqlx::raw_sql("
//! #     create table orders (id text primary key, total_cents bigint not null);
//! #     select symphony.register_payment_rail('sepa', '{}', 'docs', 'an example')")
//! #     .execute(&mut connection).await?;
//! use serde_json::json;
//! use symphony_client::payment::{self, Instruction};
//!
//! let payload = json!({ "amount": "10.50", "currency": "EUR" });
//! let instruction = Instruction::new("order-1", "shop-7", "order-1/pay", "sepa", payload);
//!
//! let mut transaction = connection.begin().await?;
//! sqlx::query("insert into orders values ($1, $2)")
//!     .bind("order-1")
//!     .bind(1050_i64)
//!     .execute(&mut *transaction)
//!     .await?;
//! let enqueued = payment::sqlx::enqueue(&mut transaction, &instruction).await?;
//! transaction.commit().await?;
//!
//! assert_eq!(enqueued.sequence_id, 1);
//! assert!(!enqueued.replayed);
//! # let rows: i64 = sqlx::query_scalar("select count(*) from symphony.payment_outbox_pending, orders")
//! #     .fetch_one(&mut connection).await?;
//! # assert_eq!(rows, 1);
//! # connection.close().await?;
//! # database.close().await?;
//! # Ok(())
//! # }
//! ```

use sqlx::Row;
use sqlx::postgres::{PgConnection, PgRow};
use sqlx::types::{Json, Uuid};

use super::instruction::{Columns, sql};
use super::timestamptz::Timestamptz;
use super::{Cancelled, Enqueued, Instruction, PaymentOutcome, UnknownState};
use crate::OutboxId;
use crate::error::{CancelError, DatabaseError, EnqueueError};

/// Enqueues one instruction, or returns the outbox row that its idempotency key already has.
///
/// The transaction locks the participant's sequence until it ends: other producers of that participant wait. Enqueue
/// last, then commit.
///
/// # Errors
///
/// See [`EnqueueError`]. The transaction has then failed, as after any PostgreSQL error.
pub async fn enqueue(connection: &mut PgConnection, instruction: &Instruction) -> Result<Enqueued, EnqueueError> {
    let row = sqlx::query(sql::ENQUEUE)
        .bind(&instruction.instruction_id)
        .bind(&instruction.participant_id)
        .bind(&instruction.idempotency_key)
        .bind(&instruction.rail_type)
        .bind(Json(instruction.payload.raw()))
        .bind(instruction.not_before.map(Timestamptz))
        .persistent(false)
        .fetch_one(connection)
        .await?;
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
    connection: &mut PgConnection,
    instructions: &[Instruction],
) -> Result<Vec<Enqueued>, EnqueueError> {
    let columns = Columns::of(instructions);
    let payloads: Vec<_> = columns.payloads.into_iter().map(Json).collect();
    let not_befores: Vec<_> = columns.not_befores.into_iter().map(|time| time.map(Timestamptz)).collect();
    let rows = sqlx::query(sql::ENQUEUE_BATCH)
        .bind(&columns.instruction_ids)
        .bind(&columns.participant_ids)
        .bind(&columns.idempotency_keys)
        .bind(&columns.rail_types)
        .bind(&payloads)
        .bind(&not_befores)
        .persistent(false)
        .fetch_all(connection)
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
pub async fn set_traceparent(connection: &mut PgConnection, traceparent: &str) -> Result<(), DatabaseError> {
    sqlx::query(sql::SET_TRACEPARENT).bind(traceparent).persistent(false).execute(connection).await?;
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
    connection: &mut PgConnection,
    instruction_id: &str,
    idempotency_key: &str,
    actor: &str,
    reason: &str,
) -> Result<Cancelled, CancelError> {
    let row = sqlx::query(sql::CANCEL)
        .bind(instruction_id)
        .bind(idempotency_key)
        .bind(actor)
        .bind(reason)
        .persistent(false)
        .fetch_one(connection)
        .await?;
    Ok(Cancelled {
        outbox_id: OutboxId(row.try_get::<Uuid, _>("outbox_id")?),
        cancelled_at: row.try_get::<Timestamptz, _>("cancelled_at")?.0,
    })
}

/// What became of a payment; `None` if no payment of this instruction has this idempotency key.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn outcome(
    connection: &mut PgConnection,
    instruction_id: &str,
    idempotency_key: &str,
) -> Result<Option<PaymentOutcome>, DatabaseError> {
    let row = sqlx::query(sql::OUTCOME)
        .bind(instruction_id)
        .bind(idempotency_key)
        .persistent(false)
        .fetch_optional(connection)
        .await?;
    let Some(row) = row else { return Ok(None) };
    let time = |column| Ok::<_, sqlx::Error>(row.try_get::<Option<Timestamptz>, _>(column)?.map(|time| time.0));
    let state: &str = row.try_get("state")?;
    Ok(Some(PaymentOutcome {
        outbox_id: OutboxId(row.try_get::<Uuid, _>("outbox_id")?),
        state: state.parse().map_err(|unknown: UnknownState| sqlx::Error::Decode(unknown.into()))?,
        attempts: row.try_get("attempts")?,
        outcome_unknown: row.try_get("outcome_unknown")?,
        error_code: row.try_get("error_code")?,
        rail_code: row.try_get("rail_code")?,
        rail_reference: row.try_get("rail_reference")?,
        resolution: row.try_get("resolution")?,
        created_at: row.try_get::<Timestamptz, _>("created_at")?.0,
        last_attempt_at: time("last_attempt_at")?,
        next_attempt_at: time("next_attempt_at")?,
        ended_at: time("ended_at")?,
    }))
}

fn enqueued(row: &PgRow) -> Result<Enqueued, EnqueueError> {
    Ok(Enqueued {
        outbox_id: OutboxId(row.try_get::<Uuid, _>("outbox_id")?),
        sequence_id: row.try_get("sequence_id")?,
        created_at: row.try_get::<Timestamptz, _>("created_at")?.0,
        replayed: row.try_get("replayed")?,
    })
}
