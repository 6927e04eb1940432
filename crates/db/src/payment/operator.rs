//! The calls of an operator: redrive, resolve, cancel, erase payloads, and manage rails. The audit log keeps the actor and reason of each.
//!
//! The login needs the role `symphony_operator`. Each call is one transaction, unless the caller opened one.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};
use uuid::Uuid;

use super::{Payload, Rail, RailPolicy, Resolution, rail};
use crate::OutboxId;
use crate::error::OperateError;

const REDRIVE: &str = "\
    select outbox_id, sequence_id, created_at from symphony.redrive_payment_outbox($1, $2, $3, $4, $5)";
const CANCEL: &str = "\
    select outbox_id, cancelled_at from symphony.cancel_payment_outbox($1, $2, $3, $4)";
const RESOLVE: &str = "\
    select operation_id, resolved_at from symphony.resolve_payment_outbox($1, $2, $3, $4)";
const ERASE: &str = "\
    select outbox_ids, erased_at, rows, tables from symphony.erase_payment_payload($1, $2, $3)";
const REGISTER_RAIL: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at, on_epoch_change, held_since_epoch, \
           publish_outcomes, on_failure, max_per_second, confirm_every_seconds \
    from symphony.register_payment_rail($1, $2, $3, $4)";
const SET_RAIL: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at, on_epoch_change, held_since_epoch, \
           publish_outcomes, on_failure, max_per_second, confirm_every_seconds \
    from symphony.set_payment_rail($1, $2, $3, $4)";
const RETIRE: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at, on_epoch_change, held_since_epoch, \
           publish_outcomes, on_failure, max_per_second, confirm_every_seconds \
    from symphony.retire_payment_rail($1, $2, $3)";
const PAUSE: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at, on_epoch_change, held_since_epoch, \
           publish_outcomes, on_failure, max_per_second, confirm_every_seconds \
    from symphony.pause_payment_rail($1, $2, $3)";
const RESUME: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at, on_epoch_change, held_since_epoch, \
           publish_outcomes, on_failure, max_per_second, confirm_every_seconds \
    from symphony.resume_payment_rail($1, $2, $3)";
const RECOVER: &str = "\
    select rail_type, max_attempts, backoff_base_seconds, backoff_cap_seconds, ordered, max_in_flight, paused, \
           on_unknown, key_memory_seconds, updated_by, updated_at, retired_at, on_epoch_change, held_since_epoch, \
           publish_outcomes, on_failure, max_per_second, confirm_every_seconds \
    from symphony.recover_epoch($1, $2, $3)";

const DECLARE_SAME_ENDPOINT: &str = "\
    select operation_id, declared_at as recorded_at from symphony.declare_same_endpoint($1, $2, $3, $4, $5)";
const REVOKE_SAME_ENDPOINT: &str = "\
    select operation_id, revoked_at as recorded_at from symphony.revoke_same_endpoint($1, $2, $3, $4, $5)";
const MAKE_DUE: &str = "select symphony.make_payments_due($1, $2, $3) as made_due";
const REPAIR: &str = "select requeued, failed from symphony.repair_payment_rail($1, $2, $3)";

/// Actor and reason of an operation, for the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AuditContext<'a> {
    /// The operator, as they name themselves.
    pub actor: &'a str,
    /// The reason. For a resolution, the evidence.
    pub reason: &'a str,
}

/// The new outbox of a redrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Redriven {
    /// The new outbox.
    pub outbox_id: OutboxId,
    /// Its position in the participant's sequence.
    pub sequence_id: i64,
    /// When it was enqueued.
    pub created_at: Timestamp,
}

/// A cancelled payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Cancelled {
    /// Its outbox.
    pub outbox_id: OutboxId,
    /// When it was cancelled.
    pub cancelled_at: Timestamp,
}

/// A recorded resolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Resolved {
    /// The operation in the audit log.
    pub operation_id: Uuid,
    /// When it was recorded.
    pub resolved_at: Timestamp,
}

/// An erased payload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Erased {
    /// The outboxes of the payment: the one given, and those that redrives link with it.
    pub outbox_ids: Vec<OutboxId>,
    /// When it was erased.
    pub erased_at: Timestamp,
    /// The rows of the ledger and the quarantine whose payload was replaced.
    pub rows: i32,
    /// The tables whose dead rows still have the payload, until VACUUM.
    pub tables: Vec<String>,
}

/// A recorded declaration about two endpoints, or its revocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct EndpointOperation {
    /// The operation in the audit log.
    pub operation_id: Uuid,
    /// When it was recorded.
    pub recorded_at: Timestamp,
}

/// The result of a repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct Repaired {
    /// Expired leases whose rows were requeued.
    pub requeued: i64,
    /// Expired leases of the last attempt, whose rows moved to the dead-letter queue.
    pub failed: i64,
}

/// Redrives a dead letter as a new outbox under the same idempotency key.
///
/// # Errors
///
/// See [`OperateError`]. A dead letter with an unknown outcome is refused until it is resolved as
/// [`Resolution::NotPaid`].
pub async fn redrive(
    client: &impl GenericClient,
    outbox_id: OutboxId,
    audit: AuditContext<'_>,
) -> Result<Redriven, OperateError> {
    redrive_as(client, outbox_id, None, None, audit).await
}

/// Redrives a payment that the bank has refused as another payment there: under a new idempotency key, with a new payload
/// if one is given.
///
/// # Errors
///
/// See [`OperateError`]. Only a dead letter that the ledger knows to be unpaid is admitted: one with the bank's own code or
/// with `INVALID_PAYLOAD`, without an unknown outcome in its history.
pub async fn replace(
    client: &impl GenericClient,
    outbox_id: OutboxId,
    idempotency_key: &str,
    payload: Option<&Payload>,
    audit: AuditContext<'_>,
) -> Result<Redriven, OperateError> {
    redrive_as(client, outbox_id, Some(idempotency_key), payload, audit).await
}

async fn redrive_as(
    client: &impl GenericClient,
    outbox_id: OutboxId,
    idempotency_key: Option<&str>,
    payload: Option<&Payload>,
    audit: AuditContext<'_>,
) -> Result<Redriven, OperateError> {
    let payload = payload.map(Json);
    let row = client
        .query_typed_one(
            REDRIVE,
            &[
                (&outbox_id.0, Type::UUID),
                (&audit.actor, Type::TEXT),
                (&audit.reason, Type::TEXT),
                (&idempotency_key, Type::TEXT),
                (&payload, Type::JSONB),
            ],
        )
        .await?;
    Ok(Redriven {
        outbox_id: row.try_get("outbox_id")?,
        sequence_id: row.try_get("sequence_id")?,
        created_at: row.try_get("created_at")?,
    })
}

/// Cancels a payment that was never sent.
///
/// # Errors
///
/// See [`OperateError`]. A payment that has ended, is leased, or may have been sent is
/// [`InvalidState`](OperateError::InvalidState).
pub async fn cancel(
    client: &impl GenericClient,
    instruction_id: &str,
    idempotency_key: &str,
    audit: AuditContext<'_>,
) -> Result<Cancelled, OperateError> {
    let row = client
        .query_typed_one(
            CANCEL,
            &[
                (&instruction_id, Type::TEXT),
                (&idempotency_key, Type::TEXT),
                (&audit.actor, Type::TEXT),
                (&audit.reason, Type::TEXT),
            ],
        )
        .await?;
    Ok(Cancelled { outbox_id: row.try_get("outbox_id")?, cancelled_at: row.try_get("cancelled_at")? })
}

/// Records an operator's resolution of a dead letter.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn resolve(
    client: &impl GenericClient,
    outbox_id: OutboxId,
    resolution: Resolution,
    audit: AuditContext<'_>,
) -> Result<Resolved, OperateError> {
    let row = client
        .query_typed_one(
            RESOLVE,
            &[
                (&outbox_id.0, Type::UUID),
                (&resolution.as_str(), Type::TEXT),
                (&audit.actor, Type::TEXT),
                (&audit.reason, Type::TEXT),
            ],
        )
        .await?;
    Ok(Resolved { operation_id: row.try_get("operation_id")?, resolved_at: row.try_get("resolved_at")? })
}

/// Erases the payload of a payment that has ended, in all outboxes that redrives link with it.
///
/// # Errors
///
/// See [`OperateError`]. A pending payment and an unresolved dead letter are refused.
pub async fn erase(
    client: &impl GenericClient,
    outbox_id: OutboxId,
    audit: AuditContext<'_>,
) -> Result<Erased, OperateError> {
    let row = client
        .query_typed_one(
            ERASE,
            &[(&outbox_id.0, Type::UUID), (&audit.actor, Type::TEXT), (&audit.reason, Type::TEXT)],
        )
        .await?;
    Ok(Erased {
        outbox_ids: row.try_get("outbox_ids")?,
        erased_at: row.try_get("erased_at")?,
        rows: row.try_get("rows")?,
        tables: row.try_get("tables")?,
    })
}

/// Registers a rail and returns it. Policy fields that are left out take their defaults.
///
/// # Errors
///
/// See [`OperateError`]. A registered rail is refused; a retired one may be registered again.
pub async fn register_rail(
    client: &impl GenericClient,
    rail_type: &str,
    policy: &RailPolicy,
    audit: AuditContext<'_>,
) -> Result<Rail, OperateError> {
    with_policy(client, REGISTER_RAIL, rail_type, policy, audit).await
}

/// Changes the policy of a registered rail and returns the rail.
///
/// # Errors
///
/// See [`OperateError`]. A rail that is not registered is refused.
pub async fn set_rail(
    client: &impl GenericClient,
    rail_type: &str,
    policy: &RailPolicy,
    audit: AuditContext<'_>,
) -> Result<Rail, OperateError> {
    with_policy(client, SET_RAIL, rail_type, policy, audit).await
}

/// Retires a rail: nothing can be enqueued to it any more. Its history stays.
///
/// # Errors
///
/// See [`OperateError`]. A rail with pending payments is refused.
pub async fn retire(
    client: &impl GenericClient,
    rail_type: &str,
    audit: AuditContext<'_>,
) -> Result<Rail, OperateError> {
    switch(client, RETIRE, rail_type, audit).await
}

/// Pauses a rail: claims skip it. Dispatches that hold a lease continue.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn pause(
    client: &impl GenericClient,
    rail_type: &str,
    audit: AuditContext<'_>,
) -> Result<Rail, OperateError> {
    switch(client, PAUSE, rail_type, audit).await
}

/// Resumes a paused rail.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn resume(
    client: &impl GenericClient,
    rail_type: &str,
    audit: AuditContext<'_>,
) -> Result<Rail, OperateError> {
    switch(client, RESUME, rail_type, audit).await
}

/// Repairs the expired leases of a rail, at most 1000.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn repair(
    client: &impl GenericClient,
    rail_type: &str,
    audit: AuditContext<'_>,
) -> Result<Repaired, OperateError> {
    let row = client
        .query_typed_one(
            REPAIR,
            &[(&rail_type, Type::TEXT), (&audit.actor, Type::TEXT), (&audit.reason, Type::TEXT)],
        )
        .await?;
    Ok(Repaired { requeued: row.try_get("requeued")?, failed: row.try_get("failed")? })
}

/// Declares two endpoints of a rail to be the same bank, for an address that has moved.
///
/// # Errors
///
/// See [`OperateError`]. Endpoints that are the same already are refused.
pub async fn declare_same_endpoint(
    client: &impl GenericClient,
    rail_type: &str,
    (endpoint, same_as): (&str, &str),
    audit: AuditContext<'_>,
) -> Result<EndpointOperation, OperateError> {
    about_endpoints(client, DECLARE_SAME_ENDPOINT, rail_type, (endpoint, same_as), audit).await
}

/// Revokes such a declaration.
///
/// # Errors
///
/// See [`OperateError`]. A pair that was not declared is refused.
pub async fn revoke_same_endpoint(
    client: &impl GenericClient,
    rail_type: &str,
    (endpoint, same_as): (&str, &str),
    audit: AuditContext<'_>,
) -> Result<EndpointOperation, OperateError> {
    about_endpoints(client, REVOKE_SAME_ENDPOINT, rail_type, (endpoint, same_as), audit).await
}

async fn about_endpoints(
    client: &impl GenericClient,
    sql: &'static str,
    rail_type: &str,
    (endpoint, same_as): (&str, &str),
    audit: AuditContext<'_>,
) -> Result<EndpointOperation, OperateError> {
    let row = client
        .query_typed_one(
            sql,
            &[
                (&rail_type, Type::TEXT),
                (&endpoint, Type::TEXT),
                (&same_as, Type::TEXT),
                (&audit.actor, Type::TEXT),
                (&audit.reason, Type::TEXT),
            ],
        )
        .await?;
    Ok(EndpointOperation { operation_id: row.try_get("operation_id")?, recorded_at: row.try_get("recorded_at")? })
}

/// Makes the scheduled payments of a rail due at once, at most 10,000. Returns how many.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn make_due(
    client: &impl GenericClient,
    rail_type: &str,
    audit: AuditContext<'_>,
) -> Result<i64, OperateError> {
    let row = client
        .query_typed_one(
            MAKE_DUE,
            &[(&rail_type, Type::TEXT), (&audit.actor, Type::TEXT), (&audit.reason, Type::TEXT)],
        )
        .await?;
    Ok(row.try_get("made_due")?)
}

async fn with_policy(
    client: &impl GenericClient,
    sql: &'static str,
    rail_type: &str,
    policy: &RailPolicy,
    audit: AuditContext<'_>,
) -> Result<Rail, OperateError> {
    let row = client
        .query_typed_one(
            sql,
            &[
                (&rail_type, Type::TEXT),
                (&Json(policy), Type::JSONB),
                (&audit.actor, Type::TEXT),
                (&audit.reason, Type::TEXT),
            ],
        )
        .await?;
    Ok(rail::from_row(&row)?)
}

async fn switch(
    client: &impl GenericClient,
    sql: &'static str,
    rail_type: &str,
    audit: AuditContext<'_>,
) -> Result<Rail, OperateError> {
    let row = client
        .query_typed_one(sql, &[(&rail_type, Type::TEXT), (&audit.actor, Type::TEXT), (&audit.reason, Type::TEXT)])
        .await?;
    Ok(rail::from_row(&row)?)
}

/// Releases the rails that a new epoch has held, or only this one, and returns them.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn recover_epoch(
    client: &impl GenericClient,
    rail_type: Option<&str>,
    audit: AuditContext<'_>,
) -> Result<Vec<Rail>, OperateError> {
    let rows = client
        .query_typed(RECOVER, &[(&audit.actor, Type::TEXT), (&audit.reason, Type::TEXT), (&rail_type, Type::TEXT)])
        .await?;
    rows.iter().map(|row| Ok(rail::from_row(row)?)).collect()
}
