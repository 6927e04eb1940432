//! The audit log: operations on one outbox, all operations, and exports by time.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use crate::OutboxId;
use crate::error::DatabaseError;
use crate::payment::{OperationKind, Resolution};

// Operations on the outbox, and the redrive that created it.
const OPERATIONS: &str = "\
    select operation_id, operation, outbox_id, new_outbox_id, resolution, rail_type, policy_before, policy_after, \
           actor, reason, database_user, created_at \
    from symphony.payment_outbox_operations_log \
    where outbox_id = $1 or new_outbox_id = $1 \
    order by created_at, operation_id";

const LOG: &str = "\
    select operation_id, operation, outbox_id, new_outbox_id, resolution, rail_type, policy_before, policy_after, \
           actor, reason, database_user, created_at \
    from symphony.payment_outbox_operations_log \
    where operation_id < $1 \
    order by operation_id desc \
    limit $2";

// A separate statement, so that the next one sees what this one waited for.
const END: &str = "select symphony.audit_export_end($1, $2)";

// Uses the index on created_at.
const BETWEEN: &str = "\
    select operation_id, operation, outbox_id, new_outbox_id, resolution, rail_type, policy_before, policy_after, \
           actor, reason, database_user, created_at \
    from symphony.payment_outbox_operations_log \
    where created_at >= $1 and created_at < $2 and (created_at, operation_id) > ($3, $4) \
    order by created_at, operation_id \
    limit $5";

const COUNT: &str = "\
    select count(*) \
    from (select from symphony.payment_outbox_operations_log where created_at >= $1 and created_at < $2 limit $3) o";

/// An operation of an operator.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Operation {
    /// Its id.
    pub operation_id: Uuid,
    /// The kind of operation.
    pub operation: OperationKind,
    /// The dead letter that it concerns.
    pub outbox_id: Option<OutboxId>,
    /// The new outbox of a redrive.
    pub new_outbox_id: Option<OutboxId>,
    /// The resolution.
    pub resolution: Option<Resolution>,
    /// The rail concerned; none for retention and partitions of the ledger.
    pub rail_type: Option<String>,
    /// The policy of the rail, or the retention, before a change.
    pub policy_before: Option<serde_json::Value>,
    /// The policy of the rail, or the retention, after a change; what was archived or dropped of a partition.
    pub policy_after: Option<serde_json::Value>,
    /// The operator, as they named themselves.
    pub actor: String,
    /// The reason.
    pub reason: String,
    /// The database login.
    pub database_user: String,
    /// When it was recorded.
    pub created_at: Timestamp,
}

/// The operations on an outbox, in order, starting with the redrive that created it.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn operations(
    client: &impl GenericClient,
    outbox_id: OutboxId,
) -> Result<Vec<Operation>, DatabaseError> {
    let rows = client.query_typed(OPERATIONS, &[(&outbox_id.0, Type::UUID)]).await?;
    rows.iter().map(operation).collect()
}

/// A page of the audit log, latest first: at most `at_most` operations before `before`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn operations_log(
    client: &impl GenericClient,
    before: Option<Uuid>,
    at_most: i32,
) -> Result<Vec<Operation>, DatabaseError> {
    let (before, at_most) = (before.unwrap_or(Uuid::max()), i64::from(at_most));
    let rows = client.query_typed(LOG, &[(&before, Type::UUID), (&at_most, Type::INT8)]).await?;
    rows.iter().map(operation).collect()
}

/// Up to when the audit log and the ledger are complete: `until`, or earlier if an open transaction has written to
/// them. An export ends at that time, and the next one starts there. Waits for such transactions, at most `wait`.
///
/// Run it on a client, not inside a transaction, and read afterwards.
///
/// # Errors
///
/// [`DatabaseError::LockHeld`] names a transaction that stayed open. See [`DatabaseError`].
pub async fn audit_export_end(
    client: &impl GenericClient,
    until: Timestamp,
    wait: std::time::Duration,
) -> Result<Timestamp, DatabaseError> {
    let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
    let row = client.query_typed_one(END, &[(&until, Type::TIMESTAMPTZ), (&wait_ms, Type::INT4)]).await?;
    Ok(row.try_get(0)?)
}

/// At most `at_most` operations from `from` and before `to`, in order, after the cursor `after`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn operations_between(
    client: &impl GenericClient,
    from: Timestamp,
    to: Timestamp,
    after: Option<(Timestamp, Uuid)>,
    at_most: i32,
) -> Result<Vec<Operation>, DatabaseError> {
    let (at, id) = after.unwrap_or((from, Uuid::nil()));
    let rows = client
        .query_typed(
            BETWEEN,
            &[
                (&from, Type::TIMESTAMPTZ),
                (&to, Type::TIMESTAMPTZ),
                (&at, Type::TIMESTAMPTZ),
                (&id, Type::UUID),
                (&i64::from(at_most), Type::INT8),
            ],
        )
        .await?;
    rows.iter().map(operation).collect()
}

/// Counts the operations from `from` and before `to`, at most `at_most`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn count_operations(
    client: &impl GenericClient,
    from: Timestamp,
    to: Timestamp,
    at_most: i64,
) -> Result<i64, DatabaseError> {
    let arguments: [(&(dyn ToSql + Sync), Type); 3] =
        [(&from, Type::TIMESTAMPTZ), (&to, Type::TIMESTAMPTZ), (&at_most, Type::INT8)];
    let row = client.query_typed_one(COUNT, &arguments).await?;
    Ok(row.try_get(0)?)
}

fn operation(row: &Row) -> Result<Operation, DatabaseError> {
    Ok(Operation {
        operation_id: row.try_get("operation_id")?,
        operation: row.try_get("operation")?,
        outbox_id: row.try_get("outbox_id")?,
        new_outbox_id: row.try_get("new_outbox_id")?,
        resolution: row.try_get("resolution")?,
        rail_type: row.try_get("rail_type")?,
        policy_before: row.try_get("policy_before")?,
        policy_after: row.try_get("policy_after")?,
        actor: row.try_get("actor")?,
        reason: row.try_get("reason")?,
        database_user: row.try_get("database_user")?,
        created_at: row.try_get("created_at")?,
    })
}
