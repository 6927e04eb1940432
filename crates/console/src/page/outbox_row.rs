//! A payment as a row of a table.

use symphony_db::payment::OutboxState;
use symphony_db::payment::reader::Outbox;

use super::percent_encode;
use super::texts::is_cancelled;
use super::time::Moment;

/// The row.
pub(super) struct OutboxRow {
    pub(super) id: String,
    pub(super) instruction: String,
    pub(super) participant: String,
    pub(super) participant_path: String,
    pub(super) sequence: i64,
    pub(super) key: String,
    pub(super) rail: String,
    pub(super) state: &'static str,
    pub(super) tone: &'static str,
    pub(super) attempts: i32,
    pub(super) created: Moment,
    pub(super) ended: Moment,
    pub(super) error: String,
}

impl From<Outbox> for OutboxRow {
    fn from(outbox: Outbox) -> Self {
        let tone = if is_cancelled(&outbox) { "wait" } else { tone(outbox.state, outbox.outcome_unknown) };
        Self {
            id: outbox.outbox_id.to_string(),
            participant_path: format!("/participants/{}", percent_encode(&outbox.participant_id)),
            instruction: outbox.instruction_id,
            participant: outbox.participant_id,
            sequence: outbox.sequence_id,
            key: outbox.idempotency_key,
            rail: outbox.rail_type,
            state: outbox.state.as_str(),
            tone,
            attempts: outbox.attempts,
            created: Moment::of(outbox.created_at),
            ended: outbox.ended_at.map(Moment::of).unwrap_or_default(),
            error: outbox.error_code.unwrap_or_default(),
        }
    }
}

/// The CSS class of a state. Pages always show the state as text too.
pub(super) fn tone(state: OutboxState, unknown: bool) -> &'static str {
    match state {
        OutboxState::Dispatched => "ok",
        OutboxState::Failed | OutboxState::LeaseExpired | OutboxState::HeldByFailure => "bad",
        OutboxState::Scheduled | OutboxState::Paused | OutboxState::Held if unknown => "bad",
        OutboxState::Scheduled | OutboxState::Paused | OutboxState::Held => "retry",
        OutboxState::Due | OutboxState::Leased | OutboxState::AwaitingConfirmation | OutboxState::Parked => "wait",
    }
}
