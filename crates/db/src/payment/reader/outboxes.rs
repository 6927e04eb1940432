//! Reads one outbox by its id, or a page of a search.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use crate::error::DatabaseError;
use crate::payment::{OutboxState, Resolution};
use crate::{OutboxId, Page};

const OUTBOX: &str = "\
    select to_jsonb(o.*) \
    from symphony.payment_outboxes o \
    where o.outbox_id = $1";

const SEARCH: &str = "\
    select outboxes, examined, next_before \
    from symphony.search_payment_outboxes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// An outbox, pending or terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Outbox {
    /// Its id.
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
    /// Its state.
    pub state: OutboxState,
    /// The number of attempts so far.
    pub attempts: i32,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it reached its terminal state.
    pub ended_at: Option<Timestamp>,
    /// When it is due next; none in a terminal state.
    pub next_attempt_at: Option<Timestamp>,
    /// The worker that holds its lease, or made its last attempt.
    pub worker_id: Option<String>,
    /// When its lease expires.
    pub lease_expires_at: Option<Timestamp>,
    /// The rail's own reference for the payment.
    pub rail_reference: Option<String>,
    /// The rail's own result code of the latest attempt.
    pub rail_code: Option<String>,
    /// The error code of the latest attempt.
    pub error_code: Option<String>,
    /// The error message of the latest attempt.
    pub error_message: Option<String>,
    /// Whether the latest attempt has an unknown outcome: it may have been paid.
    pub outcome_unknown: bool,
    /// The dead letter that it redrives.
    pub redrive_of: Option<OutboxId>,
    /// The outbox that redrives it.
    pub redriven_as: Option<OutboxId>,
    /// The operator's resolution.
    pub resolution: Option<Resolution>,
    /// When its payload was erased.
    pub payload_erased_at: Option<Timestamp>,
}

/// A search; a field that is none matches everything.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OutboxSearch {
    /// The producer's own id of the payment.
    pub instruction_id: Option<String>,
    /// The participant whose payments are numbered in one sequence.
    pub participant_id: Option<String>,
    /// The idempotency key, under which the rail pays at most once.
    pub idempotency_key: Option<String>,
    /// The rail.
    pub rail_type: Option<String>,
    /// Its state.
    pub state: Option<OutboxState>,
    /// The error code of the latest attempt.
    pub error_code: Option<String>,
    /// Enqueued at this time or later.
    pub from: Option<Timestamp>,
    /// Enqueued before this time.
    pub to: Option<Timestamp>,
    /// The cursor of the previous page.
    pub before: Option<OutboxId>,
}

/// One outbox; none if there is no such outbox.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn outbox(client: &impl GenericClient, outbox_id: OutboxId) -> Result<Option<Outbox>, DatabaseError> {
    let row = client.query_typed_opt(OUTBOX, &[(&outbox_id.0, Type::UUID)]).await?;
    row.map(|row| Ok(row.try_get::<_, Json<Outbox>>(0)?.0)).transpose()
}

/// A page of matching outboxes, newest first: at most `at_most` of them, 1 to 200.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn search(
    client: &impl GenericClient,
    search: &OutboxSearch,
    at_most: i32,
) -> Result<Page<Outbox, OutboxId>, DatabaseError> {
    let row = client
        .query_typed_one(
            SEARCH,
            &[
                (&search.instruction_id, Type::TEXT),
                (&search.participant_id, Type::TEXT),
                (&search.idempotency_key, Type::TEXT),
                (&search.rail_type, Type::TEXT),
                (&search.state.map(OutboxState::as_str), Type::TEXT),
                (&search.error_code, Type::TEXT),
                (&search.from, Type::TIMESTAMPTZ),
                (&search.to, Type::TIMESTAMPTZ),
                (&search.before.map(|id| id.0), Type::UUID),
                (&at_most, Type::INT4),
            ],
        )
        .await?;
    page(&row, "outboxes")
}

/// Reads the result of a function that returns a page, with the outboxes in `column`.
pub(super) fn page(row: &Row, column: &str) -> Result<Page<Outbox, OutboxId>, DatabaseError> {
    Ok(Page {
        rows: row.try_get::<_, Json<_>>(column)?.0,
        examined: Some(row.try_get("examined")?),
        next: row.try_get("next_before")?,
    })
}
