//! Publishing over tokio-postgres.
//!
//! Give it the transaction that writes the business rows: the event is committed with them or not at all. For a login
//! with the role `symphony_ingest`.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use super::occurrence::PUBLISH;
use super::{Event, EventId};
use crate::error::event::PublishError;

/// Publishes one event.
///
/// There is no idempotency key: a transaction that is run again after it was committed publishes again.
///
/// # Errors
///
/// See [`PublishError`]. The transaction has failed then, as after any error of PostgreSQL.
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
