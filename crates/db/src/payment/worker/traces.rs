//! The trace contexts of claimed outboxes. A claim does not return them, because its columns are a contract.

use std::collections::HashMap;

use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::OutboxId;
use crate::error::ClaimError;
use crate::executor::Executor;

const TRACES: &str = "select outbox_id, traceparent from symphony.outbox_trace_contexts($1)";

/// The W3C `traceparent` of each of these outboxes, at most 1000, whose producer set one.
///
/// The form is checked, but the ids may be all zeros.
///
/// # Errors
///
/// See [`ClaimError`].
pub async fn trace_contexts(
    client: &impl Executor,
    outboxes: &[OutboxId],
) -> Result<HashMap<OutboxId, String>, ClaimError> {
    let ids: Vec<Uuid> = outboxes.iter().map(|outbox| outbox.0).collect();
    let rows = client.fetch_all(TRACES, &[(&ids, Type::UUID_ARRAY)]).await?;
    rows.iter().map(|row| Ok((row.try_get("outbox_id")?, row.try_get("traceparent")?))).collect()
}
