//! Reads the payload of a payment, for auditors only.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use crate::error::DatabaseError;
use crate::{OutboxId, Payload};

const PAYLOAD: &str = "\
    select payload::jsonb from symphony.payment_outbox_pending where outbox_id = $1 \
    union all \
    select payload from symphony.payment_outbox_attempts where outbox_id = $1 \
    limit 1";

/// The payload of an outbox; none if there is no such outbox. For `symphony_auditor`.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn payload(client: &impl GenericClient, outbox_id: OutboxId) -> Result<Option<Payload>, DatabaseError> {
    let row = client.query_typed_opt(PAYLOAD, &[(&outbox_id.0, Type::UUID)]).await;
    let row = row.map_err(|error| DatabaseError::from(error).for_role("symphony_auditor"))?;
    row.map(|row| Ok(row.try_get::<_, Json<Payload>>(0)?.0)).transpose()
}
