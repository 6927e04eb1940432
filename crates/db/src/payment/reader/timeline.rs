//! The timeline of an outbox or an instruction.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::Type;
use tokio_postgres::{GenericClient, Row};

use crate::OutboxId;
use crate::error::DatabaseError;
use crate::payment::{AttemptState, EventKind};

const TIMELINE: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, rail_type, event_no, event, occurred_at, \
           attempt_no, state::text, worker_id, rail_reference, rail_code, error_code, error_message, latency_ms, \
           related_outbox_id, database_user, endpoint, confirmation_id \
    from symphony.payment_outbox_events \
    where outbox_id = $1 \
    order by event_no";

// Sequence numbers are per participant: if two participants share an instruction id, each timeline stays together.
const INSTRUCTION_TIMELINE: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, rail_type, event_no, event, occurred_at, \
           attempt_no, state::text, worker_id, rail_reference, rail_code, error_code, error_message, latency_ms, \
           related_outbox_id, database_user, endpoint, confirmation_id \
    from symphony.payment_outbox_events \
    where instruction_id = $1 \
    order by sequence_id, outbox_id, event_no";

/// An event in the timeline of an outbox.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct TimelineEvent {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// The producer's own id of the payment.
    pub instruction_id: String,
    /// The participant whose payments are numbered in one sequence.
    pub participant_id: String,
    /// Its position in the participant's sequence.
    pub sequence_id: i64,
    /// The rail that dispatches it.
    pub rail_type: String,
    /// Its number in the timeline of the outbox, with possible gaps.
    pub event_no: i32,
    /// The kind of event.
    pub event: EventKind,
    /// When it happened, by the database's clock.
    pub occurred_at: Timestamp,
    /// The number of its attempt.
    pub attempt_no: Option<i32>,
    /// The state in which the attempt ended.
    pub state: Option<AttemptState>,
    /// The worker; for a redrive, the operator; none for a cancellation.
    pub worker_id: Option<String>,
    /// The rail's own reference for the payment.
    pub rail_reference: Option<String>,
    /// The rail's own result code.
    pub rail_code: Option<String>,
    /// The error code.
    pub error_code: Option<String>,
    /// The error message.
    pub error_message: Option<String>,
    /// The latency of the rail.
    pub latency_ms: Option<i32>,
    /// For ENQUEUED, the dead letter that it redrives; for REDRIVEN, the new outbox.
    pub related_outbox_id: Option<OutboxId>,
    /// The database login that recorded the attempt or the redrive.
    pub database_user: Option<String>,
    /// Where the worker of the attempt sends to: a name and a digest of what identifies the bank there.
    pub endpoint: Option<String>,
    /// For CONFIRMED, the id of the message by which the rail reported the outcome.
    pub confirmation_id: Option<String>,
}

/// The timeline of one outbox, in order; empty if there is no such outbox.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn timeline(
    client: &impl GenericClient,
    outbox_id: OutboxId,
) -> Result<Vec<TimelineEvent>, DatabaseError> {
    let rows = client.query_typed(TIMELINE, &[(&outbox_id.0, Type::UUID)]).await?;
    rows.iter().map(event).collect()
}

/// The timeline of an instruction over all of its outboxes, redrives included, in order.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn instruction_timeline(
    client: &impl GenericClient,
    instruction_id: &str,
) -> Result<Vec<TimelineEvent>, DatabaseError> {
    let rows = client.query_typed(INSTRUCTION_TIMELINE, &[(&instruction_id, Type::TEXT)]).await?;
    rows.iter().map(event).collect()
}

fn event(row: &Row) -> Result<TimelineEvent, DatabaseError> {
    Ok(TimelineEvent {
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
        endpoint: row.try_get("endpoint")?,
        confirmation_id: row.try_get("confirmation_id")?,
    })
}
