//! What a producer says and hears, and the SQL by which it does. Knows no driver: both of them use this.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::Payload;
use crate::OutboxId;

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) mod sql {
    /// One instruction.
    pub(in crate::payment) const ENQUEUE: &str = "\
        select outbox_id, sequence_id, created_at, replayed \
        from symphony.enqueue_payment_outbox($1, $2, $3, $4, $5)";

    /// Many, as an array for each field.
    pub(in crate::payment) const ENQUEUE_BATCH: &str = "\
        select outbox_id, sequence_id, created_at, replayed \
        from symphony.enqueue_payment_outbox_batch($1, $2, $3, $4, $5)";

    /// The trace that the rest of the transaction belongs to.
    pub(in crate::payment) const SET_TRACEPARENT: &str = "select set_config('symphony.traceparent', $1, true)";
}

/// One order to pay.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Instruction {
    /// The order, by the producer's own name.
    pub instruction_id: String,
    /// The party whose instructions are sequenced.
    pub participant_id: String,
    /// The name under which the rail must not pay twice. The same on every repetition of this order.
    pub idempotency_key: String,
    /// The rail that carries it.
    pub rail_type: String,
    /// What the rail is given: a JSON object.
    pub payload: Payload,
}

/// The outbox row that an instruction has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Enqueued {
    /// Its id.
    pub outbox_id: OutboxId,
    /// Its place in the order of its participant: 1, 2, 3, … without gaps.
    pub sequence_id: i64,
    /// When it was enqueued, by the clock of the database.
    pub created_at: Timestamp,
    /// Whether the key was known already, so that nothing new was made.
    pub replayed: bool,
}

/// Instructions as the arrays that the batch takes.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) struct Columns<'a> {
    pub(super) instruction_ids: Vec<&'a str>,
    pub(super) participant_ids: Vec<&'a str>,
    pub(super) idempotency_keys: Vec<&'a str>,
    pub(super) rail_types: Vec<&'a str>,
    pub(super) payloads: Vec<&'a serde_json::value::RawValue>,
}

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
impl<'a> Columns<'a> {
    pub(super) fn of(instructions: &'a [Instruction]) -> Self {
        Self {
            instruction_ids: instructions.iter().map(|i| i.instruction_id.as_str()).collect(),
            participant_ids: instructions.iter().map(|i| i.participant_id.as_str()).collect(),
            idempotency_keys: instructions.iter().map(|i| i.idempotency_key.as_str()).collect(),
            rail_types: instructions.iter().map(|i| i.rail_type.as_str()).collect(),
            payloads: instructions.iter().map(|i| i.payload.raw()).collect(),
        }
    }
}
