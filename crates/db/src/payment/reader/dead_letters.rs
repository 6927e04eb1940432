//! The dead-letter queue: its rows, a searchable list, and counts.
//!
//! [`DeadLetter`] is a row of the view `symphony.payment_outbox_dlq`, in the order in which an operator should decide.
//! [`list_dead_letters`] returns the same outboxes as [`Outbox`], page by page and latest first, for the dashboard.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use super::outboxes::{Outbox, page};
use crate::error::DatabaseError;
use crate::{BatchSize, OutboxId, Page, WorkerId};

const DLQ: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, \
           error_code, error_message, rail_reference, rail_code, worker_id, created_at, failed_at, outcome_unknown \
    from symphony.payment_outbox_dlq \
    where ($2::boolean is null or outcome_unknown = $2) \
      and ($3::text is null or rail_type = $3) \
      and ($4::text is null or error_code = $4) \
      and ($5::text is null or rail_code = $5) \
    order by outcome_unknown desc, failed_at, outbox_id \
    limit $1";

const LIST: &str = "\
    select dead_letters, examined, next_before \
    from symphony.list_payment_dead_letters($1, $2, $3, $4, $5, $6)";

const COUNT: &str = "select known, unknown, more, rails from symphony.count_payment_dead_letters($1, $2, $3)";

/// A row of `symphony.payment_outbox_dlq`: a terminal failure that no operator has redriven or resolved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DeadLetter {
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
    /// The rail that dispatched it.
    pub rail_type: String,
    /// The number of the last attempt.
    pub attempt_no: i32,
    /// The error code.
    pub error_code: String,
    /// The error message.
    pub error_message: Option<String>,
    /// The rail's own reference for the payment.
    pub rail_reference: Option<String>,
    /// The rail's own result code.
    pub rail_code: Option<String>,
    /// The worker of the last attempt.
    pub worker_id: WorkerId,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it failed.
    pub failed_at: Timestamp,
    /// Whether the outcome is unknown: it may have been paid.
    pub outcome_unknown: bool,
}

/// A filter of dead letters; a field that is none matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Whether the outcome is unknown.
    pub outcome_unknown: Option<bool>,
    /// Their rail.
    pub rail_type: Option<String>,
    /// Their error code.
    pub error_code: Option<String>,
    /// The code that their rail gave.
    pub rail_code: Option<String>,
}

/// How many of the latest 5000 terminal failures are dead letters.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct DeadLetterCount {
    /// Dead letters with a known outcome: they were not paid.
    pub known: i64,
    /// Dead letters with an unknown outcome: they may have been paid.
    pub unknown: i64,
    /// Whether there are older failures that were not counted.
    pub more: bool,
    /// The same for each rail that has any.
    pub rails: Vec<RailDeadLetters>,
}

/// The same for one rail.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct RailDeadLetters {
    /// Its name.
    pub rail_type: String,
    /// Dead letters with a known outcome: they were not paid.
    pub known: i64,
    /// Dead letters with an unknown outcome: they may have been paid.
    pub unknown: i64,
}

/// A page of dead letters as outboxes, latest first: at most `at_most` of them, 1 to 200, before `before`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn list_dead_letters(
    client: &impl GenericClient,
    filter: &DeadLetterFilter,
    before: Option<OutboxId>,
    at_most: i32,
) -> Result<Page<Outbox, OutboxId>, DatabaseError> {
    let row = client
        .query_typed_one(
            LIST,
            &[
                (&filter.outcome_unknown, Type::BOOL),
                (&filter.rail_type, Type::TEXT),
                (&filter.error_code, Type::TEXT),
                (&before.map(|id| id.0), Type::UUID),
                (&at_most, Type::INT4),
                (&filter.rail_code, Type::TEXT),
            ],
        )
        .await?;
    page(&row, "dead_letters")
}

/// Counts dead letters that match, of known and unknown outcome whatever the filter says of that.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn count_dead_letters(
    client: &impl GenericClient,
    filter: &DeadLetterFilter,
) -> Result<DeadLetterCount, DatabaseError> {
    let row = client
        .query_typed_one(
            COUNT,
            &[(&filter.rail_type, Type::TEXT), (&filter.error_code, Type::TEXT), (&filter.rail_code, Type::TEXT)],
        )
        .await?;
    Ok(DeadLetterCount {
        known: row.try_get("known")?,
        unknown: row.try_get("unknown")?,
        more: row.try_get("more")?,
        rails: row.try_get::<_, Json<_>>("rails")?.0,
    })
}

/// The first dead letters that match: those with an unknown outcome, then the oldest.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn dead_letters(
    client: &impl GenericClient,
    filter: &DeadLetterFilter,
    at_most: BatchSize,
) -> Result<Vec<DeadLetter>, DatabaseError> {
    let rows = client
        .query_typed(
            DLQ,
            &[
                (&i64::from(at_most.get()), Type::INT8),
                (&filter.outcome_unknown, Type::BOOL),
                (&filter.rail_type, Type::TEXT),
                (&filter.error_code, Type::TEXT),
                (&filter.rail_code, Type::TEXT),
            ],
        )
        .await?;
    rows.iter().map(dead_letter).collect()
}

fn dead_letter(row: &Row) -> Result<DeadLetter, DatabaseError> {
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
