//! Outboxes as people look for them: one by its id, or a page of those that fit.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tokio_postgres::types::{Json, Type};
use tokio_postgres::{GenericClient, Row};

use crate::OutboxId;
use crate::error::Fault;
use crate::payment::{OutboxState, Resolution};

const OUTBOX: &str = "\
    select to_jsonb(o.*) \
    from symphony.payment_outboxes o \
    where o.outbox_id = $1";

const SEARCH: &str = "\
    select outboxes, examined, next_before \
    from symphony.search_payment_outboxes($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";

/// An outbox, pending or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Outbox {
    /// Its id.
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
    /// What became of it.
    pub state: OutboxState,
    /// Attempts so far.
    pub attempts: i32,
    /// When it was enqueued.
    pub created_at: Timestamp,
    /// When it ended.
    pub ended_at: Option<Timestamp>,
    /// When it may be claimed next; none once it has ended.
    pub next_attempt_at: Option<Timestamp>,
    /// The worker that holds its lease, or made its last attempt.
    pub worker_id: Option<String>,
    /// When its lease ends.
    pub lease_expires_at: Option<Timestamp>,
    /// The rail's own reference of the payment.
    pub rail_reference: Option<String>,
    /// The rail's own code of the latest outcome.
    pub rail_code: Option<String>,
    /// What went wrong with the latest attempt, by a fixed word.
    pub error_code: Option<String>,
    /// What went wrong with the latest attempt, in a sentence.
    pub error_message: Option<String>,
    /// Whether nobody knew how the latest attempt ended: it may have been paid.
    pub outcome_unknown: bool,
    /// The failure that it tries again.
    pub redrive_of: Option<OutboxId>,
    /// The outbox by which it goes on.
    pub redriven_as: Option<OutboxId>,
    /// What a person found out about it.
    pub resolution: Option<Resolution>,
}

/// What to look for. What is left out is not asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Search {
    /// The order to pay.
    pub instruction_id: Option<String>,
    /// The party whose instructions are sequenced.
    pub participant_id: Option<String>,
    /// The name under which the rail must not pay twice.
    pub idempotency_key: Option<String>,
    /// The rail.
    pub rail_type: Option<String>,
    /// What became of it.
    pub state: Option<OutboxState>,
    /// What went wrong with the latest attempt.
    pub error_code: Option<String>,
    /// Enqueued at this moment or later.
    pub from: Option<Timestamp>,
    /// Enqueued before this moment.
    pub to: Option<Timestamp>,
    /// Where a page before this one ended.
    pub before: Option<OutboxId>,
}

/// A page of what was looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// What fits, newest first.
    pub outboxes: Vec<Outbox>,
    /// How many were looked at.
    pub examined: i32,
    /// Where to go on; none where there is no more.
    pub next_before: Option<OutboxId>,
}

/// One outbox; none where there is none of that id.
///
/// # Errors
///
/// See [`Fault`].
pub async fn outbox(client: &impl GenericClient, outbox_id: OutboxId) -> Result<Option<Outbox>, Fault> {
    let row = client.query_typed_opt(OUTBOX, &[(&outbox_id.0, Type::UUID)]).await?;
    row.map(|row| Ok(row.try_get::<_, Json<Outbox>>(0)?.0)).transpose()
}

/// At most so many outboxes that fit, 1 to 200.
///
/// # Errors
///
/// See [`Fault`].
pub async fn search(client: &impl GenericClient, search: &Search, at_most: i32) -> Result<Page, Fault> {
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

/// The answer of a function that gives a page.
pub(super) fn page(row: &Row, column: &str) -> Result<Page, Fault> {
    Ok(Page {
        outboxes: row.try_get::<_, Json<_>>(column)?.0,
        examined: row.try_get("examined")?,
        next_before: row.try_get("next_before")?,
    })
}
