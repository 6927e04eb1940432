//! An outbox as a line of a table.

use symphony_outbox::payment::OutboxState;
use symphony_outbox::payment::reading::Outbox;

use super::in_path;
use super::time::Moment;

/// The line.
pub(super) struct Row {
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

impl From<Outbox> for Row {
    fn from(outbox: Outbox) -> Self {
        Self {
            id: outbox.outbox_id.to_string(),
            participant_path: format!("/participants/{}", in_path(&outbox.participant_id)),
            instruction: outbox.instruction_id,
            participant: outbox.participant_id,
            sequence: outbox.sequence_id,
            key: outbox.idempotency_key,
            rail: outbox.rail_type,
            state: outbox.state.as_str(),
            tone: tone(outbox.state, outbox.outcome_unknown),
            attempts: outbox.attempts,
            created: Moment::of(outbox.created_at),
            ended: outbox.ended_at.map(Moment::of).unwrap_or_default(),
            error: outbox.error_code.unwrap_or_default(),
        }
    }
}

/// How a state is coloured; its word is always there beside the colour.
pub(super) fn tone(state: OutboxState, unknown: bool) -> &'static str {
    match state {
        OutboxState::Dispatched => "ok",
        OutboxState::Failed | OutboxState::LeaseExpired => "bad",
        OutboxState::Scheduled | OutboxState::Paused if unknown => "bad",
        OutboxState::Scheduled | OutboxState::Paused => "again",
        OutboxState::Due | OutboxState::Leased | OutboxState::Waiting => "wait",
    }
}
