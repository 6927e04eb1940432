//! Enqueueing over sqlx: the same calls as [`producer`](super::producer), on a connection of sqlx.
//!
//! Give these the transaction that writes the business rows (`&mut transaction` is enough): what is enqueued is
//! committed with them or not at all. Statements are not kept on the connection, so a pooler in transaction mode
//! may stand in between, as long as the caller is in a transaction.
//!
//! sqlx has no jiff, and turning on its chrono or time for one column would put that crate into every
//! program that links this one. PostgreSQL sends a timestamptz as eight bytes: they are read here, which keeps the
//! SQL the same for both drivers.

use jiff::Timestamp;
use sqlx::error::BoxDynError;
use sqlx::postgres::{PgConnection, PgRow, PgTypeInfo, PgValueFormat, PgValueRef, Postgres};
use sqlx::types::{Json, Uuid};
use sqlx::{Decode, Row, Type, TypeInfo};

use super::instruction::{Columns, sql};
use super::{Enqueued, Instruction};
use crate::OutboxId;
use crate::error::{EnqueueError, Fault};

/// Enqueues one instruction, or answers with the outbox that its key has already.
///
/// Until the transaction ends it holds the participant's place in the sequence: other producers of that
/// participant wait. Enqueue last, then commit.
///
/// # Errors
///
/// See [`EnqueueError`]. The transaction has failed then, as after any error of PostgreSQL.
pub async fn enqueue(connection: &mut PgConnection, instruction: &Instruction) -> Result<Enqueued, EnqueueError> {
    let row = sqlx::query(sql::ENQUEUE)
        .bind(&instruction.instruction_id)
        .bind(&instruction.participant_id)
        .bind(&instruction.idempotency_key)
        .bind(&instruction.rail_type)
        .bind(Json(instruction.payload.raw()))
        .persistent(false)
        .fetch_one(connection)
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
    connection: &mut PgConnection,
    instructions: &[Instruction],
) -> Result<Vec<Enqueued>, EnqueueError> {
    let columns = Columns::of(instructions);
    let payloads: Vec<_> = columns.payloads.into_iter().map(Json).collect();
    let rows = sqlx::query(sql::ENQUEUE_BATCH)
        .bind(&columns.instruction_ids)
        .bind(&columns.participant_ids)
        .bind(&columns.idempotency_keys)
        .bind(&columns.rail_types)
        .bind(&payloads)
        .persistent(false)
        .fetch_all(connection)
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
pub async fn set_traceparent(connection: &mut PgConnection, traceparent: &str) -> Result<(), Fault> {
    sqlx::query(sql::SET_TRACEPARENT).bind(traceparent).persistent(false).execute(connection).await?;
    Ok(())
}

fn enqueued(row: &PgRow) -> Result<Enqueued, EnqueueError> {
    Ok(Enqueued {
        outbox_id: OutboxId(row.try_get::<Uuid, _>("outbox_id")?),
        sequence_id: row.try_get("sequence_id")?,
        created_at: row.try_get::<Timestamptz, _>("created_at")?.0,
        replayed: row.try_get("replayed")?,
    })
}

/// A timestamptz: microseconds since the year 2000, in UTC.
struct Timestamptz(Timestamp);

impl Type<Postgres> for Timestamptz {
    fn type_info() -> PgTypeInfo {
        PgTypeInfo::with_name("TIMESTAMPTZ")
    }

    fn compatible(of: &PgTypeInfo) -> bool {
        of.name() == "TIMESTAMPTZ"
    }
}

impl Decode<'_, Postgres> for Timestamptz {
    fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
        const YEAR_2000_IN_UNIX_MICROSECONDS: i64 = 946_684_800_000_000;
        match value.format() {
            PgValueFormat::Binary => {
                let since_2000 = i64::from_be_bytes(value.as_bytes()?.try_into()?);
                let since_1970 =
                    since_2000.checked_add(YEAR_2000_IN_UNIX_MICROSECONDS).ok_or("a timestamptz without end")?;
                Ok(Self(Timestamp::from_microsecond(since_1970)?))
            }
            PgValueFormat::Text => Err("a timestamptz as text, which no bound statement returns".into()),
        }
    }
}
