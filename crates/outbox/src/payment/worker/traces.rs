//! Whose traces claimed outboxes belong to. A claim does not say, since its columns are a contract.

use std::collections::HashMap;

use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::OutboxId;
use crate::ask::Ask;
use crate::error::LeaseError;

const TRACES: &str = "select outbox_id, traceparent from symphony.outbox_trace_contexts($1)";

/// The W3C `traceparent` of each of these outboxes whose producer has set one; at most 1000 are asked about.
///
/// It has the form of one and need not be valid: ids of zeros are stored as well.
///
/// # Errors
///
/// See [`LeaseError`].
pub async fn trace_contexts(
    client: &impl Ask,
    outboxes: &[OutboxId],
) -> Result<HashMap<OutboxId, String>, LeaseError> {
    let ids: Vec<Uuid> = outboxes.iter().map(|outbox| outbox.0).collect();
    let rows = client.ask(TRACES, &[(&ids, Type::UUID_ARRAY)]).await?;
    rows.iter().map(|row| Ok((row.try_get("outbox_id")?, row.try_get("traceparent")?))).collect()
}
