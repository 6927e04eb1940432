//! How long ended rows are kept, and their removal afterwards. By default everything is kept for ever.
//!
//! An operator sets it; relayers and `symphony maintain` remove keys, events and metadata in batches. Partitions of the
//! ledger are archived: see [`archive`](crate::payment::archive).

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

use crate::error::{ClaimError, DatabaseError, OperateError};
use crate::executor::Executor;
use crate::payment::operator::AuditContext;
use crate::text_enum::text_enum;

const POLICIES: &str =
    "select kept, keep_days, cutoff, changed_by, reason, database_user, changed_at from symphony.retention";
const SET: &str = "select symphony.set_retention($1, $2, $3, $4)";
const REMOVE_KEYS: &str = "select removed, swept_to_end from symphony.remove_expired_keys($1)";
const REMOVE_EVENTS: &str = "select symphony.remove_processed_events($1) as removed";
const REMOVE_METADATA: &str = "select symphony.remove_ended_metadata($1) as removed";

text_enum! {
    /// What is kept.
    Kept, "a kind of row that is kept" {
        /// The rows of the ledger, by time of enqueue.
        PaymentLedger = "payment_ledger",
        /// The registry of idempotency keys.
        PaymentKeys = "payment_keys",
        /// Processed events and their errors.
        Events = "events",
        /// Published and dead metadata entries.
        Metadata = "metadata",
    }
}

/// For how long rows of a kind are kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Retention {
    /// What is kept.
    pub kept: Kept,
    /// For how many days; none is for ever.
    pub keep_days: Option<i32>,
    /// What ended before this is past its retention.
    pub cutoff: Option<Timestamp>,
    /// Who set it; none while it is the default.
    pub changed_by: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// The login.
    pub database_user: Option<String>,
    /// When.
    pub changed_at: Option<Timestamp>,
}

/// The retention of each kind.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn policies(client: &impl GenericClient) -> Result<Vec<Retention>, DatabaseError> {
    let rows = client.query_typed(POLICIES, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(Retention {
                kept: row.try_get("kept")?,
                keep_days: row.try_get("keep_days")?,
                cutoff: row.try_get("cutoff")?,
                changed_by: row.try_get("changed_by")?,
                reason: row.try_get("reason")?,
                database_user: row.try_get("database_user")?,
                changed_at: row.try_get("changed_at")?,
            })
        })
        .collect()
}

/// Sets for how many days rows of a kind are kept; none is for ever.
///
/// # Errors
///
/// See [`OperateError`]. Keys must be kept at least as long as the ledger.
pub async fn set(
    client: &impl GenericClient,
    kept: Kept,
    keep_days: Option<i32>,
    audit: AuditContext<'_>,
) -> Result<(), OperateError> {
    client
        .query_typed_one(
            SET,
            &[
                (&kept.as_str(), Type::TEXT),
                (&keep_days, Type::INT4),
                (&audit.actor, Type::TEXT),
                (&audit.reason, Type::TEXT),
            ],
        )
        .await?;
    Ok(())
}

/// Removes a batch of idempotency keys past their retention. Returns how many, and whether this call has read the end of
/// the registry.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn remove_expired_keys(client: &impl Executor, limit: i32) -> Result<(i64, bool), ClaimError> {
    let row = client.fetch_one(REMOVE_KEYS, &[(&limit, Type::INT4)]).await?;
    Ok((row.try_get("removed")?, row.try_get("swept_to_end")?))
}

/// Removes a batch of processed events past their retention. Returns how many.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn remove_processed_events(client: &impl Executor, limit: i32) -> Result<i64, ClaimError> {
    Ok(client.fetch_one(REMOVE_EVENTS, &[(&limit, Type::INT4)]).await?.try_get("removed")?)
}

/// Removes a batch of metadata entries past their retention. Returns how many.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn remove_ended_metadata(client: &impl Executor, limit: i32) -> Result<i64, ClaimError> {
    Ok(client.fetch_one(REMOVE_METADATA, &[(&limit, Type::INT4)]).await?.try_get("removed")?)
}
