//! What people did: to an outbox, and all of it.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{GenericClient, Row};
use uuid::Uuid;

use crate::OutboxId;
use crate::error::Fault;
use crate::payment::{OperationKind, Resolution};

// What was done to the outbox, and the redrive by which it came about.
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

// In a statement of its own: what it waited for is visible to the next.
const END: &str = "select symphony.audit_export_end($1, $2)";

// By the index of their time.
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

/// Something that a person did.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Operation {
    /// Its id.
    pub operation_id: Uuid,
    /// What was done.
    pub operation: OperationKind,
    /// The terminal failure that it was done to.
    pub outbox_id: Option<OutboxId>,
    /// The outbox that a redrive made.
    pub new_outbox_id: Option<OutboxId>,
    /// What a person found out.
    pub resolution: Option<Resolution>,
    /// The rail concerned.
    pub rail_type: String,
    /// The rail's policy before a change.
    pub policy_before: Option<serde_json::Value>,
    /// The rail's policy after a change.
    pub policy_after: Option<serde_json::Value>,
    /// Who did it, in their own words.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The login that did it.
    pub database_user: String,
    /// When.
    pub created_at: Timestamp,
}

/// What people did to an outbox, in order, from the redrive that made it onwards.
///
/// # Errors
///
/// See [`Fault`].
pub async fn operations(client: &impl GenericClient, outbox_id: OutboxId) -> Result<Vec<Operation>, Fault> {
    let rows = client.query_typed(OPERATIONS, &[(&outbox_id.0, Type::UUID)]).await?;
    rows.iter().map(operation).collect()
}

/// At most so many of all operations, the latest first, before this one.
///
/// # Errors
///
/// See [`Fault`].
pub async fn log_of_operations(
    client: &impl GenericClient,
    before: Option<Uuid>,
    at_most: i32,
) -> Result<Vec<Operation>, Fault> {
    let (before, at_most) = (before.unwrap_or(Uuid::max()), i64::from(at_most));
    let rows = client.query_typed(LOG, &[(&before, Type::UUID), (&at_most, Type::INT8)]).await?;
    rows.iter().map(operation).collect()
}

/// Up to when the log of operations and the ledger are complete: at most until this moment, and before anything that a transaction
/// which is still open has written. An export ends there, and the next one starts there. Waits so long for such transactions.
///
/// Run it on a client, not inside a transaction, and read afterwards.
///
/// # Errors
///
/// [`Fault::LockHeld`] names the transaction that stays open. See [`Fault`].
pub async fn audit_export_end(
    client: &impl GenericClient,
    until: Timestamp,
    wait: std::time::Duration,
) -> Result<Timestamp, Fault> {
    let wait_ms = i32::try_from(wait.as_millis()).unwrap_or(i32::MAX);
    let row = client.query_typed_one(END, &[(&until, Type::TIMESTAMPTZ), (&wait_ms, Type::INT4)]).await?;
    Ok(row.try_get(0)?)
}

/// At most so many of the operations from a moment on and before another, in order, after this one.
///
/// # Errors
///
/// See [`Fault`].
pub async fn operations_between(
    client: &impl GenericClient,
    from: Timestamp,
    to: Timestamp,
    after: Option<(Timestamp, Uuid)>,
    at_most: i32,
) -> Result<Vec<Operation>, Fault> {
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

/// How many there are from a moment on and before another, counted no further than this.
///
/// # Errors
///
/// See [`Fault`].
pub async fn count_operations(
    client: &impl GenericClient,
    from: Timestamp,
    to: Timestamp,
    at_most: i64,
) -> Result<i64, Fault> {
    let asked: [(&(dyn ToSql + Sync), Type); 3] =
        [(&from, Type::TIMESTAMPTZ), (&to, Type::TIMESTAMPTZ), (&at_most, Type::INT8)];
    let row = client.query_typed_one(COUNT, &asked).await?;
    Ok(row.try_get(0)?)
}

fn operation(row: &Row) -> Result<Operation, Fault> {
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
