//! Publishes events over tokio-postgres.
//!
//! Pass the transaction that writes the business rows: the event is committed with them or not at all. The login needs
//! the role `symphony_ingest`.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use super::message::PUBLISH;
use super::{Event, EventId};
use crate::error::PublishError;

/// Publishes one event.
///
/// There is no idempotency key: running a transaction again after its commit publishes the event again.
///
/// # Errors
///
/// See [`PublishError`]. The transaction has then failed, as after any PostgreSQL error.
pub async fn publish(client: &impl GenericClient, event: &Event) -> Result<EventId, PublishError> {
    let row = client
        .query_typed_one(
            PUBLISH,
            &[
                (&event.aggregate_type, Type::TEXT),
                (&event.aggregate_id, Type::TEXT),
                (&event.event_type, Type::TEXT),
                (&Json(event.payload.raw()), Type::JSONB),
            ],
        )
        .await?;
    Ok(EventId(row.try_get("id")?))
}
