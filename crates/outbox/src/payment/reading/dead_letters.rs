//! The terminal failures that wait for a person.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use crate::error::Fault;
use crate::{BatchSize, OutboxId, WorkerId};

const DEAD_LETTERS: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, \
           error_code, error_message, rail_reference, rail_code, worker_id, created_at, failed_at, outcome_unknown \
    from symphony.payment_outbox_dlq \
    order by outcome_unknown desc, failed_at, outbox_id \
    limit $1";

/// A terminal failure that nobody has redriven or resolved yet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// The order to pay.
    pub instruction_id: String,
    /// The party whose instructions are sequenced.
    pub participant_id: String,
    /// Its place in the order of that participant.
    pub sequence_id: i64,
    /// The name under which the rail must not pay twice.
    pub idempotency_key: String,
    /// The rail that carried it.
    pub rail_type: String,
    /// The number of the last attempt.
    pub attempt_no: i32,
    /// Why it failed, by a fixed word.
    pub error_code: String,
    /// Why it failed, in a sentence.
    pub error_message: Option<String>,
    /// The rail's own reference of the payment.
    pub rail_reference: Option<String>,
    /// The rail's own code of the outcome.
    pub rail_code: Option<String>,
    /// The worker of the last attempt.
    pub worker_id: WorkerId,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it failed.
    pub failed_at: Timestamp,
    /// Whether it may have been paid all the same: nobody knows.
    pub outcome_unknown: bool,
}

/// The first so many dead letters: those with an unknown outcome, then the oldest.
///
/// # Errors
///
/// See [`Fault`].
pub async fn dead_letters(client: &impl GenericClient, at_most: BatchSize) -> Result<Vec<DeadLetter>, Fault> {
    let rows = client.query_typed(DEAD_LETTERS, &[(&i64::from(at_most.get()), Type::INT8)]).await?;
    rows.iter().map(dead_letter).collect()
}

fn dead_letter(row: &Row) -> Result<DeadLetter, Fault> {
    Ok(DeadLetter {
        outbox_id: row.try_get("outbox_id")?,
        instruction_id: row.try_get("instruction_id")?,
        participant_id: row.try_get("participant_id")?,
        sequence_id: row.try_get("sequence_id")?,
        idempotency_key: row.try_get("idempotency_key")?,
        rail_type: row.try_get("rail_type")?,
        attempt_no: row.try_get("attempt_no")?,
        error_code: row.try_get("error_code")?,
        error_message: row.try_get("error_message")?,
        rail_reference: row.try_get("rail_reference")?,
        rail_code: row.try_get("rail_code")?,
        worker_id: row.try_get("worker_id")?,
        created_at: row.try_get("created_at")?,
        failed_at: row.try_get("failed_at")?,
        outcome_unknown: row.try_get("outcome_unknown")?,
    })
}
