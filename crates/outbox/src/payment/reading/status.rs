//! What is going on now: the totals, and one pending outbox.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use crate::error::Fault;
use crate::payment::{AttemptState, OutboxStatus};
use crate::{OutboxId, WorkerId};

// An age may be a float: it is read by gauges and people, and nobody adds it up.
const STATUS: &str = "\
    select due_unleased_count, leased_count, expired_lease_count, scheduled_count, oldest_pending_age_seconds::float8, \
           oldest_due_age_seconds::float8, dlq, dlq_unknown, rails \
    from symphony.supervisor_outbox_status";

const PENDING: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, status, \
           attempt_count, next_attempt_at, created_at, claimed_by, claimed_at, lease_expires_at, redrive_of, \
           last_attempt_no, last_state::text, last_completed_at, last_rail_code, last_error_code, \
           last_error_message, outcome_unknown \
    from symphony.outbox_operational_status \
    where outbox_id = $1";

/// The totals over all rails.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Rows that may be claimed now, but for pauses, caps and order.
    pub due_unleased_count: i64,
    /// Rows under a live lease.
    pub leased_count: i64,
    /// Rows whose lease has expired.
    pub expired_lease_count: i64,
    /// Rows whose time has not come.
    pub scheduled_count: i64,
    /// How long ago the oldest pending row was enqueued, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due row has waited.
    pub oldest_due_age_seconds: f64,
    /// Dead letters.
    pub dlq: i64,
    /// Dead letters of which nobody knows whether they were paid.
    pub dlq_unknown: i64,
    /// The same for each rail.
    pub rails: Vec<RailStatus>,
}

/// The totals of one rail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RailStatus {
    /// Its name.
    pub rail_type: String,
    /// Whether claims pass it by.
    pub paused: bool,
    /// Rows that may be claimed now, but for pauses, caps and order.
    pub due_unleased_count: i64,
    /// Rows under a live lease.
    pub leased_count: i64,
    /// Rows whose lease has expired.
    pub expired_lease_count: i64,
    /// Rows whose time has not come.
    pub scheduled_count: i64,
    /// How long ago the oldest pending row was enqueued, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due row has waited.
    pub oldest_due_age_seconds: f64,
    /// Dead letters.
    pub dlq: i64,
    /// Dead letters of which nobody knows whether they were paid.
    pub dlq_unknown: i64,
}

/// An outbox that has not ended, with its latest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
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
    /// The rail that carries it.
    pub rail_type: String,
    /// What it is doing now.
    pub status: OutboxStatus,
    /// Attempts so far.
    pub attempt_count: i32,
    /// When it may be claimed next.
    pub next_attempt_at: Timestamp,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// The worker that holds its lease.
    pub claimed_by: Option<WorkerId>,
    /// When that lease was granted.
    pub claimed_at: Option<Timestamp>,
    /// When that lease ends.
    pub lease_expires_at: Option<Timestamp>,
    /// The failure that it tries again.
    pub redrive_of: Option<OutboxId>,
    /// The number of its latest attempt.
    pub last_attempt_no: Option<i32>,
    /// How that ended.
    pub last_state: Option<AttemptState>,
    /// When that ended.
    pub last_completed_at: Option<Timestamp>,
    /// The rail's own code of it.
    pub last_rail_code: Option<String>,
    /// What went wrong, by a fixed word.
    pub last_error_code: Option<String>,
    /// What went wrong, in a sentence.
    pub last_error_message: Option<String>,
    /// Whether nobody knows how the latest attempt ended: it may have been paid.
    pub outcome_unknown: bool,
}

/// The totals, now.
///
/// # Errors
///
/// See [`Fault`].
pub async fn status(client: &impl GenericClient) -> Result<Status, Fault> {
    let row = client.query_typed_one(STATUS, &[]).await?;
    Ok(Status {
        due_unleased_count: row.try_get("due_unleased_count")?,
        leased_count: row.try_get("leased_count")?,
        expired_lease_count: row.try_get("expired_lease_count")?,
        scheduled_count: row.try_get("scheduled_count")?,
        oldest_pending_age_seconds: row.try_get("oldest_pending_age_seconds")?,
        oldest_due_age_seconds: row.try_get("oldest_due_age_seconds")?,
        dlq: row.try_get("dlq")?,
        dlq_unknown: row.try_get("dlq_unknown")?,
        rails: row.try_get::<_, Json<_>>("rails")?.0,
    })
}

/// What one outbox is doing now; none where it has ended or never was.
///
/// # Errors
///
/// See [`Fault`].
pub async fn pending(client: &impl GenericClient, outbox_id: OutboxId) -> Result<Option<Pending>, Fault> {
    let row = client.query_typed_opt(PENDING, &[(&outbox_id.0, Type::UUID)]).await?;
    row.as_ref().map(from_row).transpose()
}

fn from_row(row: &Row) -> Result<Pending, Fault> {
    Ok(Pending {
        outbox_id: row.try_get("outbox_id")?,
        instruction_id: row.try_get("instruction_id")?,
        participant_id: row.try_get("participant_id")?,
        sequence_id: row.try_get("sequence_id")?,
        idempotency_key: row.try_get("idempotency_key")?,
        rail_type: row.try_get("rail_type")?,
        status: row.try_get("status")?,
        attempt_count: row.try_get("attempt_count")?,
        next_attempt_at: row.try_get("next_attempt_at")?,
        created_at: row.try_get("created_at")?,
        claimed_by: row.try_get("claimed_by")?,
        claimed_at: row.try_get("claimed_at")?,
        lease_expires_at: row.try_get("lease_expires_at")?,
        redrive_of: row.try_get("redrive_of")?,
        last_attempt_no: row.try_get("last_attempt_no")?,
        last_state: row.try_get("last_state")?,
        last_completed_at: row.try_get("last_completed_at")?,
        last_rail_code: row.try_get("last_rail_code")?,
        last_error_code: row.try_get("last_error_code")?,
        last_error_message: row.try_get("last_error_message")?,
        outcome_unknown: row.try_get("outcome_unknown")?,
    })
}
