//! Creating entries over tokio-postgres.
//!
//! Give it the transaction that writes the entity: the entry is committed with it or not at all. For a login with the role
//! `symphony_ingest`.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use super::entry::{CREATE, CREATE_BOUNDED};
use super::{Entry, EntryId};
use crate::error::metadata::CreateError;

/// Creates one entry.
///
/// Until the transaction ends, others that create an entry for the same entity wait: so the later commit has the higher version.
/// There is no idempotency key: look with [`reading::find_by_entity`](super::reading::find_by_entity).
///
/// # Errors
///
/// See [`CreateError`]. The transaction has failed then, as after any error of PostgreSQL.
pub async fn create(client: &impl GenericClient, entry: &Entry) -> Result<EntryId, CreateError> {
    let metadata = Json(entry.metadata.raw());
    let (entity_type, entity_id) = (entry.entity.entity_type(), entry.entity.entity_id());
    let row = match entry.max_retries {
        None => {
            let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
                [(&entity_type, Type::TEXT), (&entity_id, Type::TEXT), (&metadata, Type::JSONB)];
            client.query_typed_one(CREATE, &arguments).await?
        }
        Some(most) => {
            let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
                (&entity_type, Type::TEXT),
                (&entity_id, Type::TEXT),
                (&metadata, Type::JSONB),
                (&most, Type::INT4),
            ];
            client.query_typed_one(CREATE_BOUNDED, &arguments).await?
        }
    };
    Ok(EntryId(row.try_get("id")?))
}
