//! Enqueueing over tokio-postgres.
//!
//! Give these the transaction that writes the business rows: what is enqueued is committed with them or not at
//! all. For a login with the role `symphony_ingest`.

use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use super::instruction::{Columns, sql};
use super::{Enqueued, Instruction};
use crate::error::{EnqueueError, Fault};

/// Enqueues one instruction, or answers with the outbox that its key has already.
///
/// Until the transaction ends it holds the participant's place in the sequence: other producers of that
/// participant wait. Enqueue last, then commit.
///
/// # Errors
///
/// See [`EnqueueError`]. The transaction has failed then, as after any error of PostgreSQL.
pub async fn enqueue(client: &impl GenericClient, instruction: &Instruction) -> Result<Enqueued, EnqueueError> {
    let row = client
        .query_typed_one(
            sql::ENQUEUE,
            &[
                (&instruction.instruction_id, Type::TEXT),
                (&instruction.participant_id, Type::TEXT),
                (&instruction.idempotency_key, Type::TEXT),
                (&instruction.rail_type, Type::TEXT),
                (&Json(instruction.payload.raw()), Type::JSONB),
            ],
        )
        .await?;
    enqueued(&row)
}

/// Enqueues many instructions in one statement: all of them, or none and an error.
///
/// The answers are in the order given. A key that stands in the batch twice is a replay the second time.
///
/// # Errors
///
/// See [`EnqueueError`]: also for no instruction at all, or more than [`BatchSize::MOST`](crate::BatchSize::MOST).
pub async fn enqueue_batch(
    client: &impl GenericClient,
    instructions: &[Instruction],
) -> Result<Vec<Enqueued>, EnqueueError> {
    let columns = Columns::of(instructions);
    let payloads: Vec<_> = columns.payloads.into_iter().map(Json).collect();
    let rows = client
        .query_typed(
            sql::ENQUEUE_BATCH,
            &[
                (&columns.instruction_ids, Type::TEXT_ARRAY),
                (&columns.participant_ids, Type::TEXT_ARRAY),
                (&columns.idempotency_keys, Type::TEXT_ARRAY),
                (&columns.rail_types, Type::TEXT_ARRAY),
                (&payloads, Type::JSONB_ARRAY),
            ],
        )
        .await?;
    rows.iter().map(enqueued).collect()
}

/// Stores a W3C `traceparent` beside what is enqueued in the rest of this transaction, so that the dispatch can
/// be linked to the request that caused it.
///
/// Outside a transaction it has no effect. What is not a `traceparent` is passed over at the enqueue.
///
/// # Errors
///
/// See [`Fault`].
pub async fn set_traceparent(client: &impl GenericClient, traceparent: &str) -> Result<(), Fault> {
    client.query_typed_one(sql::SET_TRACEPARENT, &[(&traceparent, Type::TEXT)]).await?;
    Ok(())
}

fn enqueued(row: &Row) -> Result<Enqueued, EnqueueError> {
    Ok(Enqueued {
        outbox_id: row.try_get("outbox_id")?,
        sequence_id: row.try_get("sequence_id")?,
        created_at: row.try_get("created_at")?,
        replayed: row.try_get("replayed")?,
    })
}
