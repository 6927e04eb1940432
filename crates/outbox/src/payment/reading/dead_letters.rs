//! The terminal failures that wait for a person.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use super::outboxes::{Page, page};
use crate::error::Fault;
use crate::{BatchSize, OutboxId, WorkerId};

const DEAD_LETTERS: &str = "\
    select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, attempt_no, \
           error_code, error_message, rail_reference, rail_code, worker_id, created_at, failed_at, outcome_unknown \
    from symphony.payment_outbox_dlq \
    order by outcome_unknown desc, failed_at, outbox_id \
    limit $1";

const PAGE: &str = "\
    select dead_letters, examined, next_before \
    from symphony.list_payment_dead_letters($1, $2, $3, $4, $5)";

const COUNT: &str = "select known, unknown, more, rails from symphony.count_payment_dead_letters($1, $2)";

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

/// Which dead letters. What is left out is not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeadLetterFilter {
    /// Whether nobody knows if they were paid.
    pub outcome_unknown: Option<bool>,
    /// Their rail.
    pub rail_type: Option<String>,
    /// Why they failed.
    pub error_code: Option<String>,
}

/// How many of the latest five thousand failures wait for a person.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct DeadLetterCount {
    /// Those that were not paid.
    pub known: i64,
    /// Those of which nobody knows whether they were paid.
    pub unknown: i64,
    /// Whether there are older failures that were not looked at.
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
    /// Those that were not paid.
    pub known: i64,
    /// Those of which nobody knows whether they were paid.
    pub unknown: i64,
}

/// At most so many dead letters, 1 to 200, the latest first.
///
/// # Errors
///
/// See [`Fault`].
pub async fn page_of_dead_letters(
    client: &impl GenericClient,
    filter: &DeadLetterFilter,
    before: Option<OutboxId>,
    at_most: i32,
) -> Result<Page, Fault> {
    let row = client
        .query_typed_one(
            PAGE,
            &[
                (&filter.outcome_unknown, Type::BOOL),
                (&filter.rail_type, Type::TEXT),
                (&filter.error_code, Type::TEXT),
                (&before.map(|id| id.0), Type::UUID),
                (&at_most, Type::INT4),
            ],
        )
        .await?;
    page(&row, "dead_letters")
}

/// How many wait, by rail and error.
///
/// # Errors
///
/// See [`Fault`].
pub async fn count_dead_letters(
    client: &impl GenericClient,
    rail_type: Option<&str>,
    error_code: Option<&str>,
) -> Result<DeadLetterCount, Fault> {
    let row = client.query_typed_one(COUNT, &[(&rail_type, Type::TEXT), (&error_code, Type::TEXT)]).await?;
    Ok(DeadLetterCount {
        known: row.try_get("known")?,
        unknown: row.try_get("unknown")?,
        more: row.try_get("more")?,
        rails: row.try_get::<_, Json<_>>("rails")?.0,
    })
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
