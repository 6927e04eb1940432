//! What people on duty may do, each with who they are and why: both are kept for ever.
//!
//! For a login with the role `symphony_operator`. Each call is a transaction of its own unless the caller has one.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use super::{Rail, RailPolicy, Resolution, rail};
use crate::OutboxId;
use crate::error::OperateError;

const REDRIVE: &str = "\
    select outbox_id, sequence_id, created_at from symphony.redrive_payment_outbox($1, $2, $3)";
const RESOLVE: &str = "\
    select operation_id, resolved_at from symphony.resolve_payment_outbox($1, $2, $3, $4)";
const REGISTER_RAIL: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at \
    from symphony.register_payment_rail($1, $2, $3, $4)";
const SET_RAIL: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at \
    from symphony.set_payment_rail($1, $2, $3, $4)";
const RETIRE: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at \
    from symphony.retire_payment_rail($1, $2, $3)";
const PAUSE: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at \
    from symphony.pause_payment_rail($1, $2, $3)";
const RESUME: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at \
    from symphony.resume_payment_rail($1, $2, $3)";

const REPAIR: &str = "select requeued, failed from symphony.repair_payment_rail($1, $2, $3)";

/// Who does it, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Warrant<'a> {
    /// Who, in their own words.
    pub actor: &'a str,
    /// Why. For a resolution, the evidence.
    pub reason: &'a str,
}

/// The outbox by which a failure is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Redriven {
    /// The new outbox.
    pub outbox_id: OutboxId,
    /// Its place in the order of its participant.
    pub sequence_id: i64,
    /// When it was made.
    pub created_at: Timestamp,
}

/// A resolution, as it was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Resolved {
    /// The operation in the log.
    pub operation_id: Uuid,
    /// When it was recorded.
    pub resolved_at: Timestamp,
}

/// What a repair found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Repaired {
    /// Expired leases that were given back: each is due again.
    pub requeued: i64,
    /// Expired leases of the last attempt: each went to people.
    pub failed: i64,
}

/// Tries a terminal failure again, as a new outbox under the same idempotency key.
///
/// # Errors
///
/// See [`OperateError`]: also where nobody knows whether it was paid, until it is resolved as
/// [`Resolution::NotPaid`].
pub async fn redrive(
    client: &impl GenericClient,
    outbox_id: OutboxId,
    warrant: Warrant<'_>,
) -> Result<Redriven, OperateError> {
    let row = client
        .query_typed_one(
            REDRIVE,
            &[(&outbox_id.0, Type::UUID), (&warrant.actor, Type::TEXT), (&warrant.reason, Type::TEXT)],
        )
        .await?;
    Ok(Redriven {
        outbox_id: row.try_get("outbox_id")?,
        sequence_id: row.try_get("sequence_id")?,
        created_at: row.try_get("created_at")?,
    })
}

/// Records what a person found out about a terminal failure.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn resolve(
    client: &impl GenericClient,
    outbox_id: OutboxId,
    resolution: Resolution,
    warrant: Warrant<'_>,
) -> Result<Resolved, OperateError> {
    let row = client
        .query_typed_one(
            RESOLVE,
            &[
                (&outbox_id.0, Type::UUID),
                (&resolution.as_str(), Type::TEXT),
                (&warrant.actor, Type::TEXT),
                (&warrant.reason, Type::TEXT),
            ],
        )
        .await?;
    Ok(Resolved { operation_id: row.try_get("operation_id")?, resolved_at: row.try_get("resolved_at")? })
}

/// Registers a rail, and answers with it. What the policy leaves out takes its default.
///
/// # Errors
///
/// See [`OperateError`]: also where it is registered already. One that was retired may be registered again.
pub async fn register_rail(
    client: &impl GenericClient,
    rail_type: &str,
    policy: &RailPolicy,
    warrant: Warrant<'_>,
) -> Result<Rail, OperateError> {
    with_policy(client, REGISTER_RAIL, rail_type, policy, warrant).await
}

/// Changes the policy of a registered rail, and answers with the rail as it is now.
///
/// # Errors
///
/// See [`OperateError`]: also where the rail is not registered.
pub async fn set_rail(
    client: &impl GenericClient,
    rail_type: &str,
    policy: &RailPolicy,
    warrant: Warrant<'_>,
) -> Result<Rail, OperateError> {
    with_policy(client, SET_RAIL, rail_type, policy, warrant).await
}

/// Retires a rail: nothing more can be enqueued to it. Its history stays.
///
/// # Errors
///
/// See [`OperateError`]: also while payments are pending on it.
pub async fn retire(
    client: &impl GenericClient,
    rail_type: &str,
    warrant: Warrant<'_>,
) -> Result<Rail, OperateError> {
    switch(client, RETIRE, rail_type, warrant).await
}

/// Stops handing out the work of a rail. What is under a lease goes on to its end.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn pause(
    client: &impl GenericClient,
    rail_type: &str,
    warrant: Warrant<'_>,
) -> Result<Rail, OperateError> {
    switch(client, PAUSE, rail_type, warrant).await
}

/// Hands out the work of a rail again.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn resume(
    client: &impl GenericClient,
    rail_type: &str,
    warrant: Warrant<'_>,
) -> Result<Rail, OperateError> {
    switch(client, RESUME, rail_type, warrant).await
}

/// Ends the expired leases of a rail, at most a thousand.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn repair(
    client: &impl GenericClient,
    rail_type: &str,
    warrant: Warrant<'_>,
) -> Result<Repaired, OperateError> {
    let row = client
        .query_typed_one(
            REPAIR,
            &[(&rail_type, Type::TEXT), (&warrant.actor, Type::TEXT), (&warrant.reason, Type::TEXT)],
        )
        .await?;
    Ok(Repaired { requeued: row.try_get("requeued")?, failed: row.try_get("failed")? })
}

async fn with_policy(
    client: &impl GenericClient,
    sql: &'static str,
    rail_type: &str,
    policy: &RailPolicy,
    warrant: Warrant<'_>,
) -> Result<Rail, OperateError> {
    let row = client
        .query_typed_one(
            sql,
            &[
                (&rail_type, Type::TEXT),
                (&Json(policy), Type::JSONB),
                (&warrant.actor, Type::TEXT),
                (&warrant.reason, Type::TEXT),
            ],
        )
        .await?;
    Ok(rail::from_row(&row)?)
}

async fn switch(
    client: &impl GenericClient,
    sql: &'static str,
    rail_type: &str,
    warrant: Warrant<'_>,
) -> Result<Rail, OperateError> {
    let row = client
        .query_typed_one(
            sql,
            &[(&rail_type, Type::TEXT), (&warrant.actor, Type::TEXT), (&warrant.reason, Type::TEXT)],
        )
        .await?;
    Ok(rail::from_row(&row)?)
}
