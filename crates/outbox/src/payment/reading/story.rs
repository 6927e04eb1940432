//! What happened, in order.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use crate::OutboxId;
use crate::error::Fault;
use crate::payment::{AttemptState, EventKind};

const STORY: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, rail_type, event_no, event, occurred_at, \
           attempt_no, state::text, worker_id, rail_reference, rail_code, error_code, error_message, latency_ms, \
           related_outbox_id, database_user \
    from symphony.payment_outbox_events \
    where outbox_id = $1 \
    order by event_no";

// Sequence numbers are counted per participant: should two share an instruction, each story stays in one piece.
const STORY_OF_INSTRUCTION: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, rail_type, event_no, event, occurred_at, \
           attempt_no, state::text, worker_id, rail_reference, rail_code, error_code, error_message, latency_ms, \
           related_outbox_id, database_user \
    from symphony.payment_outbox_events \
    where instruction_id = $1 \
    order by sequence_id, outbox_id, event_no";

/// Something that happened to an outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Event {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// The order to pay.
    pub instruction_id: String,
    /// The party whose instructions are sequenced.
    pub participant_id: String,
    /// Its place in the order of that participant.
    pub sequence_id: i64,
    /// The rail that carries it.
    pub rail_type: String,
    /// Its place in the story of the outbox. There may be gaps.
    pub event_no: i32,
    /// What happened.
    pub event: EventKind,
    /// When, by the clock of the database.
    pub occurred_at: Timestamp,
    /// The attempt that it belongs to.
    pub attempt_no: Option<i32>,
    /// How the attempt ended.
    pub state: Option<AttemptState>,
    /// The worker; for a redrive, the person.
    pub worker_id: Option<String>,
    /// The rail's own reference of the payment.
    pub rail_reference: Option<String>,
    /// The rail's own code of the outcome.
    pub rail_code: Option<String>,
    /// What went wrong, by a fixed word.
    pub error_code: Option<String>,
    /// What went wrong, in a sentence.
    pub error_message: Option<String>,
    /// How long the rail took to answer.
    pub latency_ms: Option<i32>,
    /// Enqueued: the failure that it tries again. Redriven: the outbox by which it goes on.
    pub related_outbox_id: Option<OutboxId>,
    /// The database login that recorded the end of an attempt, or that redrove it.
    pub database_user: Option<String>,
}

/// The story of one outbox, in order. Empty where there is no such outbox.
///
/// # Errors
///
/// See [`Fault`].
pub async fn story(client: &impl GenericClient, outbox_id: OutboxId) -> Result<Vec<Event>, Fault> {
    let rows = client.query_typed(STORY, &[(&outbox_id.0, Type::UUID)]).await?;
    rows.iter().map(event).collect()
}

/// The story of an instruction over all of its outboxes, redrives included, in order.
///
/// # Errors
///
/// See [`Fault`].
pub async fn story_of_instruction(client: &impl GenericClient, instruction_id: &str) -> Result<Vec<Event>, Fault> {
    let rows = client.query_typed(STORY_OF_INSTRUCTION, &[(&instruction_id, Type::TEXT)]).await?;
    rows.iter().map(event).collect()
}

fn event(row: &Row) -> Result<Event, Fault> {
    Ok(Event {
        outbox_id: row.try_get("outbox_id")?,
        instruction_id: row.try_get("instruction_id")?,
        participant_id: row.try_get("participant_id")?,
        sequence_id: row.try_get("sequence_id")?,
        rail_type: row.try_get("rail_type")?,
        event_no: row.try_get("event_no")?,
        event: row.try_get("event")?,
        occurred_at: row.try_get("occurred_at")?,
        attempt_no: row.try_get("attempt_no")?,
        state: row.try_get("state")?,
        worker_id: row.try_get("worker_id")?,
        rail_reference: row.try_get("rail_reference")?,
        rail_code: row.try_get("rail_code")?,
        error_code: row.try_get("error_code")?,
        error_message: row.try_get("error_message")?,
        latency_ms: row.try_get("latency_ms")?,
        related_outbox_id: row.try_get("related_outbox_id")?,
        database_user: row.try_get("database_user")?,
    })
}
