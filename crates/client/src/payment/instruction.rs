//! The instruction that a producer enqueues, its result, and the SQL of both drivers.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::OutboxId;
use crate::Payload;

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) mod sql {
    pub(in crate::payment) const ENQUEUE: &str = "\
        select outbox_id, sequence_id, created_at, replayed \
        from symphony.enqueue_payment_outbox($1, $2, $3, $4, $5, $6)";

    pub(in crate::payment) const ENQUEUE_BATCH: &str = "\
        select outbox_id, sequence_id, created_at, replayed \
        from symphony.enqueue_payment_outbox_batch($1, $2, $3, $4, $5, $6)";

    pub(in crate::payment) const CANCEL: &str = "\
        select outbox_id, cancelled_at from symphony.cancel_payment_outbox($1, $2, $3, $4)";

    pub(in crate::payment) const OUTCOME: &str = "\
        select outbox_id, state, attempts, outcome_unknown, error_code, rail_code, rail_reference, resolution, \
               created_at, last_attempt_at, next_attempt_at, ended_at \
        from symphony.payment_outcome($1, $2)";

    /// For the rest of the transaction.
    pub(in crate::payment) const SET_TRACEPARENT: &str = "select set_config('symphony.traceparent', $1, true)";
}

/// One payment to enqueue.
///
/// ```
/// use serde_json::json;
/// use symphony_client::payment::Instruction;
///
/// let payload = json!({ "amount": "10.50", "currency": "EUR" });
/// let instruction = Instruction::new("order-1", "shop-7", "order-1/pay", "sepa", payload);
/// assert_eq!(instruction.rail_type, "sepa");
/// ```
#[derive(Clone, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Instruction {
    /// The producer's own id of the payment.
    pub instruction_id: String,
    /// The merchant, customer or account whose payments are numbered in one sequence.
    pub participant_id: String,
    /// The name under which the rail pays at most once. Use the same key on every repetition of this payment.
    pub idempotency_key: String,
    /// The registered rail that dispatches it, such as `sepa`.
    pub rail_type: String,
    /// The JSON object that the rail receives.
    pub payload: Payload,
    /// No relayer claims it before this time, by the database's clock; at most 366 days ahead. A replay of the key keeps the
    /// time of the first enqueue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_before: Option<Timestamp>,
}

impl Instruction {
    /// The arguments are in the order of the SQL function `symphony.enqueue_payment_outbox`.
    pub fn new(
        instruction_id: impl Into<String>,
        participant_id: impl Into<String>,
        idempotency_key: impl Into<String>,
        rail_type: impl Into<String>,
        payload: impl Into<Payload>,
    ) -> Self {
        Self {
            instruction_id: instruction_id.into(),
            participant_id: participant_id.into(),
            idempotency_key: idempotency_key.into(),
            rail_type: rail_type.into(),
            payload: payload.into(),
            not_before: None,
        }
    }

    /// Schedules the payment: no relayer claims it before this time.
    #[must_use]
    pub fn not_before(mut self, time: Timestamp) -> Self {
        self.not_before = Some(time);
        self
    }
}

/// The outbox row of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Enqueued {
    /// Its id.
    pub outbox_id: OutboxId,
    /// Its position in the participant's sequence: 1, 2, 3, … without gaps.
    pub sequence_id: i64,
    /// When it was enqueued, by the database's clock.
    pub created_at: Timestamp,
    /// Whether this was an idempotent replay: the key was known, and no row was added.
    pub replayed: bool,
}

/// Instructions as the arrays that the batch function takes.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) struct Columns<'a> {
    pub(super) instruction_ids: Vec<&'a str>,
    pub(super) participant_ids: Vec<&'a str>,
    pub(super) idempotency_keys: Vec<&'a str>,
    pub(super) rail_types: Vec<&'a str>,
    pub(super) payloads: Vec<&'a serde_json::value::RawValue>,
    pub(super) not_befores: Vec<Option<Timestamp>>,
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
            not_befores: instructions.iter().map(|i| i.not_before).collect(),
        }
    }
}
