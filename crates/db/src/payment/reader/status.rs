//! The totals of the payment lane, and the status of one pending outbox.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use crate::error::DatabaseError;
use crate::payment::{AttemptState, OutboxStatus};
use crate::{OutboxId, WorkerId};

// An age may be a float, because it is only displayed.
macro_rules! select_status {
    ($source:literal) => {
        concat!(
            "select due_unleased_count, leased_count, expired_lease_count, scheduled_count, \
                    oldest_pending_age_seconds::float8, oldest_due_age_seconds::float8, dlq, dlq_unknown, rails, \
                    more_due, more_scheduled, estimate, awaiting_confirmation_count, \
                    oldest_awaiting_confirmation_age_seconds::float8 \
             from ",
            $source
        )
    };
}

const STATUS: &str = select_status!("symphony.supervisor_outbox_status");
const EXACT_STATUS: &str = select_status!("symphony.payment_status(null)");

const PENDING: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, status, \
           attempt_count, next_attempt_at, created_at, claimed_by, claimed_at, lease_expires_at, redrive_of, \
           last_attempt_no, last_state::text, last_completed_at, last_rail_code, last_error_code, \
           last_error_message, outcome_unknown, accepted_at \
    from symphony.outbox_operational_status \
    where outbox_id = $1";

/// The totals over all rails. Counts of pending rows stop at 10,000 per rail and kind, or fewer if there are many rails.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Status {
    /// Due rows without a lease, regardless of pauses, in-flight limits and order.
    pub due_unleased_count: i64,
    /// Rows under a lease that has not expired.
    pub leased_count: i64,
    /// Rows whose lease has expired.
    pub expired_lease_count: i64,
    /// Rows that are due later.
    pub scheduled_count: i64,
    /// The age of the oldest pending row, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due row has been due.
    pub oldest_due_age_seconds: f64,
    /// Dead letters.
    pub dlq: i64,
    /// Dead letters with an unknown outcome: they may have been paid.
    pub dlq_unknown: i64,
    /// The same for each rail.
    pub rails: Vec<RailStatus>,
    /// Whether the counts of due, leased and expired rows of a rail reached their limit: they are lower bounds.
    pub more_due: bool,
    /// Whether the count of scheduled rows of a rail reached its limit: it is a lower bound.
    pub more_scheduled: bool,
    /// All pending rows: their number, or PostgreSQL's estimate if a count reached its limit.
    pub estimate: i64,
    /// Payments that the rail has accepted and whose outcome it has not confirmed yet. The counts above have them too.
    pub awaiting_confirmation_count: i64,
    /// How long ago the first of them was accepted.
    pub oldest_awaiting_confirmation_age_seconds: f64,
}

/// The totals of one rail.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RailStatus {
    /// Its name.
    pub rail_type: String,
    /// Whether it is paused: claims skip it.
    pub paused: bool,
    /// The epoch that holds it: claims skip it until an operator releases it; none if it is not held.
    pub held_since_epoch: Option<i64>,
    /// The participants whose later payments a failure holds.
    pub held_streams: i64,
    /// Due rows without a lease, regardless of pauses, in-flight limits and order.
    pub due_unleased_count: i64,
    /// Rows under a lease that has not expired.
    pub leased_count: i64,
    /// Rows whose lease has expired.
    pub expired_lease_count: i64,
    /// Rows that are due later.
    pub scheduled_count: i64,
    /// The age of the oldest pending row, scheduled or not.
    pub oldest_pending_age_seconds: f64,
    /// How long the oldest due row has been due.
    pub oldest_due_age_seconds: f64,
    /// Dead letters.
    pub dlq: i64,
    /// Dead letters with an unknown outcome: they may have been paid.
    pub dlq_unknown: i64,
    /// Whether the counts of due, leased and expired rows reached their limit: they are lower bounds.
    pub more_due: bool,
    /// Whether the count of scheduled rows reached its limit: it is a lower bound.
    pub more_scheduled: bool,
    /// Payments that the rail has accepted and whose outcome it has not confirmed yet. The counts above have them too.
    pub awaiting_confirmation_count: i64,
    /// How long ago the first of them was accepted.
    pub oldest_awaiting_confirmation_age_seconds: f64,
}

/// A pending outbox, with its latest attempt.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Pending {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// The producer's own id of the payment.
    pub instruction_id: String,
    /// The participant whose payments are numbered in one sequence.
    pub participant_id: String,
    /// Its position in the participant's sequence.
    pub sequence_id: i64,
    /// The idempotency key, under which the rail pays at most once.
    pub idempotency_key: String,
    /// The rail that dispatches it.
    pub rail_type: String,
    /// Its status.
    pub status: OutboxStatus,
    /// The number of attempts so far.
    pub attempt_count: i32,
    /// When it is due.
    pub next_attempt_at: Timestamp,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// The worker that holds its lease.
    pub claimed_by: Option<WorkerId>,
    /// When it was claimed.
    pub claimed_at: Option<Timestamp>,
    /// When that lease expires.
    pub lease_expires_at: Option<Timestamp>,
    /// The dead letter that it redrives.
    pub redrive_of: Option<OutboxId>,
    /// The number of its latest attempt.
    pub last_attempt_no: Option<i32>,
    /// The state in which that attempt ended.
    pub last_state: Option<AttemptState>,
    /// When that attempt ended.
    pub last_completed_at: Option<Timestamp>,
    /// The rail's own result code of that attempt.
    pub last_rail_code: Option<String>,
    /// The error code.
    pub last_error_code: Option<String>,
    /// The error message.
    pub last_error_message: Option<String>,
    /// Whether the latest attempt has an unknown outcome: it may have been paid.
    pub outcome_unknown: bool,
    /// When the rail accepted it; none if it does not await confirmation.
    pub accepted_at: Option<Timestamp>,
}

/// The current totals, in a time that does not grow with the backlog.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn status(client: &impl GenericClient) -> Result<Status, DatabaseError> {
    read(client, STATUS).await
}

/// The current totals with exact counts: it reads every pending row.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn exact_status(client: &impl GenericClient) -> Result<Status, DatabaseError> {
    read(client, EXACT_STATUS).await
}

async fn read(client: &impl GenericClient, query: &str) -> Result<Status, DatabaseError> {
    let row = client.query_typed_one(query, &[]).await?;
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
        more_due: row.try_get("more_due")?,
        more_scheduled: row.try_get("more_scheduled")?,
        estimate: row.try_get("estimate")?,
        awaiting_confirmation_count: row.try_get("awaiting_confirmation_count")?,
        oldest_awaiting_confirmation_age_seconds: row.try_get("oldest_awaiting_confirmation_age_seconds")?,
    })
}

/// One pending outbox; none if it is terminal or does not exist.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn pending(client: &impl GenericClient, outbox_id: OutboxId) -> Result<Option<Pending>, DatabaseError> {
    let row = client.query_typed_opt(PENDING, &[(&outbox_id.0, Type::UUID)]).await?;
    row.as_ref().map(from_row).transpose()
}

fn from_row(row: &Row) -> Result<Pending, DatabaseError> {
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
        accepted_at: row.try_get("accepted_at")?,
    })
}
