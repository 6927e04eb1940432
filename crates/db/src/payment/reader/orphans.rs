//! Reads the orphaned outcomes: what workers know about payments whose history the database has lost.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::OutboxId;
use crate::error::DatabaseError;
use crate::payment::{AttemptState, OrphanKind};

const ORPHANS: &str = "\
    select kind, outbox_id, instruction_id, participant_id, idempotency_key, rail_type, endpoint, state::text, \
           rail_reference, rail_code, error_code, error_message, latency_ms, epoch, claimed_at, worker_id, created_at, is_open \
    from symphony.orphaned_outcomes \
    order by orphan_id desc \
    limit $1";
const OPEN: &str = "select symphony.count_open_orphans() as open";

/// An outcome of a payment whose history the database has lost, in part or in whole.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct OrphanedOutcome {
    /// What it proves.
    pub kind: OrphanKind,
    /// The outbox, as the worker had claimed it.
    pub outbox_id: OutboxId,
    /// Its instruction; none if the worker did not say.
    pub instruction_id: Option<String>,
    /// Its participant; none if the worker did not say.
    pub participant_id: Option<String>,
    /// The idempotency key that the bank was given; none if the worker did not say.
    pub idempotency_key: Option<String>,
    /// Its rail; none if the worker did not say.
    pub rail_type: Option<String>,
    /// Where it was sent; none if the worker named no endpoint.
    pub endpoint: Option<String>,
    /// The outcome, as the worker reported it.
    pub state: AttemptState,
    /// The bank's reference.
    pub rail_reference: Option<String>,
    /// The bank's code.
    pub rail_code: Option<String>,
    /// What went wrong; `OUTCOME_UNKNOWN` if the worker does not know the outcome.
    pub error_code: Option<String>,
    /// What went wrong, without personal data.
    pub error_message: Option<String>,
    /// How long the bank took.
    pub latency_ms: Option<i32>,
    /// The epoch in which the lease was granted.
    pub epoch: Option<i64>,
    /// When it was granted, by the clock of that server.
    pub claimed_at: Option<Timestamp>,
    /// The worker.
    pub worker_id: String,
    /// When it was recorded.
    pub created_at: Timestamp,
    /// Whether no later reconciliation of its rail has covered the time from its lease to its record.
    pub is_open: bool,
}

/// At most `at_most` orphaned outcomes, the newest first.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn orphans(client: &impl GenericClient, at_most: u16) -> Result<Vec<OrphanedOutcome>, DatabaseError> {
    let rows = client.query_typed(ORPHANS, &[(&i64::from(at_most), Type::INT8)]).await?;
    rows.iter()
        .map(|row| {
            Ok(OrphanedOutcome {
                kind: row.try_get("kind")?,
                outbox_id: row.try_get("outbox_id")?,
                instruction_id: row.try_get("instruction_id")?,
                participant_id: row.try_get("participant_id")?,
                idempotency_key: row.try_get("idempotency_key")?,
                rail_type: row.try_get("rail_type")?,
                endpoint: row.try_get("endpoint")?,
                state: row.try_get("state")?,
                rail_reference: row.try_get("rail_reference")?,
                rail_code: row.try_get("rail_code")?,
                error_code: row.try_get("error_code")?,
                error_message: row.try_get("error_message")?,
                latency_ms: row.try_get("latency_ms")?,
                epoch: row.try_get("epoch")?,
                claimed_at: row.try_get("claimed_at")?,
                worker_id: row.try_get("worker_id")?,
                created_at: row.try_get("created_at")?,
                is_open: row.try_get("is_open")?,
            })
        })
        .collect()
}

/// How many orphaned outcomes no later reconciliation of their rail and time has compared.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn open_orphans(client: &impl GenericClient) -> Result<i64, DatabaseError> {
    Ok(client.query_typed_one(OPEN, &[]).await?.try_get("open")?)
}
