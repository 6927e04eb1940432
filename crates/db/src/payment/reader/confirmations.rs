//! Reads the refused confirmations: what banks said about payments and could not be recorded as their outcome.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::OutboxId;
use crate::error::DatabaseError;
use crate::payment::{ConfirmationResult, ConfirmedOutcome};

const REFUSED: &str = "\
    select kind, rail_type, idempotency_key, outcome, outbox_id, rail_reference, rail_code, confirmation_id, endpoint, worker_id, created_at \
    from symphony.refused_confirmations \
    order by refusal_id desc \
    limit $1";
const TOTAL: &str = "select symphony.count_refused_confirmations() as total";

/// A confirmation that was refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RefusedConfirmation {
    /// Why it was refused.
    pub kind: ConfirmationResult,
    /// The rail whose bank said so.
    pub rail_type: String,
    /// The key by which the bank names the payment.
    pub idempotency_key: String,
    /// What the bank said.
    pub outcome: ConfirmedOutcome,
    /// The newest outbox of that key; none if no payment or several have it.
    pub outbox_id: Option<OutboxId>,
    /// The bank's reference.
    pub rail_reference: Option<String>,
    /// The bank's code.
    pub rail_code: Option<String>,
    /// The id of the first message that said so.
    pub confirmation_id: String,
    /// The endpoint of the bank.
    pub endpoint: Option<String>,
    /// The relayer that received it.
    pub worker_id: String,
    /// When it was recorded.
    pub created_at: Timestamp,
}

/// The newest refused confirmations, at most this many.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn refused_confirmations(
    client: &impl GenericClient,
    at_most: u16,
) -> Result<Vec<RefusedConfirmation>, DatabaseError> {
    let rows = client.query_typed(REFUSED, &[(&i64::from(at_most), Type::INT8)]).await?;
    let read = |row: &tokio_postgres::Row| {
        Ok(RefusedConfirmation {
            kind: row.try_get("kind")?,
            rail_type: row.try_get("rail_type")?,
            idempotency_key: row.try_get("idempotency_key")?,
            outcome: row.try_get("outcome")?,
            outbox_id: row.try_get("outbox_id")?,
            rail_reference: row.try_get("rail_reference")?,
            rail_code: row.try_get("rail_code")?,
            confirmation_id: row.try_get("confirmation_id")?,
            endpoint: row.try_get("endpoint")?,
            worker_id: row.try_get("worker_id")?,
            created_at: row.try_get("created_at")?,
        })
    };
    rows.iter().map(read).collect()
}

/// How many confirmations were ever refused.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn refused_confirmations_total(client: &impl GenericClient) -> Result<i64, DatabaseError> {
    Ok(client.query_typed_one(TOTAL, &[]).await?.try_get("total")?)
}
