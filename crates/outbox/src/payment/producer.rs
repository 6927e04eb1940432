//! Enqueueing over tokio-postgres.
//!
//! Give these the transaction that writes the business rows: what is enqueued is committed with them or not at
//! all. For a login with the role `symphony_ingest`.

use tokio_postgres::types::{Json, ToSql, Type};
use tokio_postgres::{GenericClient, Row, Statement};

use super::instruction::{Columns, sql};
use super::{Enqueued, Instruction};
use crate::error::{EnqueueError, Fault};

const ONE: [Type; 5] = [Type::TEXT, Type::TEXT, Type::TEXT, Type::TEXT, Type::JSONB];
const MANY: [Type; 5] =
    [Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::TEXT_ARRAY, Type::JSONB_ARRAY];

/// Enqueues one instruction, or answers with the outbox that its key has already.
///
/// Until the transaction ends it holds the participant's place in the sequence: other producers of that
/// participant wait. Enqueue last, then commit.
///
/// # Errors
///
/// See [`EnqueueError`]. The transaction has failed then, as after any error of PostgreSQL.
pub async fn enqueue(client: &impl GenericClient, instruction: &Instruction) -> Result<Enqueued, EnqueueError> {
    let payload = Json(instruction.payload.raw());
    let row = client.query_typed_one(sql::ENQUEUE, &typed(one(instruction, &payload), ONE)).await?;
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
    let payloads: Vec<_> = columns.payloads.iter().map(Json).collect();
    let rows = client.query_typed(sql::ENQUEUE_BATCH, &typed(many(&columns, &payloads), MANY)).await?;
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

/// The calls of a producer as statements of one connection, which the server parses and plans once instead of at every call.
///
/// For a connection that stays with its session: one of your own, or one out of a pool in your program. Behind a pooler in transaction mode, call
/// [`enqueue`] and [`enqueue_batch`], unless the pooler keeps prepared statements (PgBouncer does from 1.21 on, with `max_prepared_statements`).
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let database = symphony_proof::kit::scratch::Server::from_env().await?.database().await?;
/// # let mut client = database.connect().await?;
/// # client.batch_execute("select symphony.register_payment_rail('sepa', '{}', 'docs', 'an example')").await?;
/// # let instruction = symphony_outbox::payment::Instruction {
/// #     instruction_id: "order-1".into(),
/// #     participant_id: "shop-7".into(),
/// #     idempotency_key: "order-1/pay".into(),
/// #     rail_type: "sepa".into(),
/// #     payload: serde_json::json!({ "amount": "10.50", "currency": "EUR" }).into(),
/// # };
/// use symphony_outbox::payment::producer::Prepared;
///
/// // Once for the connection:
/// let calls = Prepared::on(&client).await?;
/// // And then as often as it is needed:
/// let transaction = client.transaction().await?;
/// let enqueued = calls.enqueue(&transaction, &instruction).await?;
/// transaction.commit().await?;
/// # assert_eq!(enqueued.sequence_id, 1);
/// # let again = calls.enqueue_batch(&client, &[instruction]).await?;
/// # assert!(again[0].replayed && again[0].outbox_id == enqueued.outbox_id);
/// # drop(client);
/// # database.close().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Prepared {
    one: Statement,
    many: Statement,
}

impl Prepared {
    /// Prepares them on this connection. They are of no use on any other.
    ///
    /// # Errors
    ///
    /// See [`Fault`].
    pub async fn on(client: &impl GenericClient) -> Result<Self, Fault> {
        Ok(Self {
            one: client.prepare_typed(sql::ENQUEUE, &ONE).await?,
            many: client.prepare_typed(sql::ENQUEUE_BATCH, &MANY).await?,
        })
    }

    /// As [`enqueue`]. The client is the connection that these were prepared on, or a transaction of it.
    ///
    /// # Errors
    ///
    /// See [`EnqueueError`]. The transaction has failed then, as after any error of PostgreSQL.
    pub async fn enqueue(
        &self,
        client: &impl GenericClient,
        instruction: &Instruction,
    ) -> Result<Enqueued, EnqueueError> {
        let payload = Json(instruction.payload.raw());
        let row = client.query_one(&self.one, &one(instruction, &payload)).await?;
        enqueued(&row)
    }

    /// As [`enqueue_batch`]. The client is the connection that these were prepared on, or a transaction of it.
    ///
    /// # Errors
    ///
    /// See [`EnqueueError`]: also for no instruction at all, or more than [`BatchSize::MOST`](crate::BatchSize::MOST).
    pub async fn enqueue_batch(
        &self,
        client: &impl GenericClient,
        instructions: &[Instruction],
    ) -> Result<Vec<Enqueued>, EnqueueError> {
        let columns = Columns::of(instructions);
        let payloads: Vec<_> = columns.payloads.iter().map(Json).collect();
        let rows = client.query(&self.many, &many(&columns, &payloads)).await?;
        rows.iter().map(enqueued).collect()
    }
}

type Argument<'a> = &'a (dyn ToSql + Sync);

fn one<'a>(instruction: &'a Instruction, payload: Argument<'a>) -> [Argument<'a>; 5] {
    let Instruction { instruction_id, participant_id, idempotency_key, rail_type, .. } = instruction;
    [instruction_id, participant_id, idempotency_key, rail_type, payload]
}

fn many<'a>(columns: &'a Columns<'_>, payloads: Argument<'a>) -> [Argument<'a>; 5] {
    let Columns { instruction_ids, participant_ids, idempotency_keys, rail_types, .. } = columns;
    [instruction_ids, participant_ids, idempotency_keys, rail_types, payloads]
}

fn typed(arguments: [Argument<'_>; 5], types: [Type; 5]) -> Vec<(Argument<'_>, Type)> {
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
