//! Creates metadata entries over tokio-postgres.
//!
//! Pass the transaction that writes the entity: the entry is committed with it or not at all. The login needs the role
//! `symphony_ingest`.

use tokio_postgres::GenericClient;
use tokio_postgres::types::{Json, Type};

use super::entry::{CREATE, CREATE_WITH_MAX_RETRIES};
use super::{Entry, EntryId};
use crate::error::CreateError;

/// Creates one entry.
///
/// Until the transaction ends, other producers of the same entity wait, so the later commit has the higher version.
/// There is no idempotency key: running a transaction again after its commit creates another entry. The SQL function
/// `symphony.find_metadata_by_entity` lists the entries of an entity.
///
/// # Errors
///
/// See [`CreateError`]. The transaction has then failed, as after any PostgreSQL error.
pub async fn create(client: &impl GenericClient, entry: &Entry) -> Result<EntryId, CreateError> {
    let metadata = Json(entry.metadata.raw());
    let (entity_type, entity_id) = (entry.entity.entity_type(), entry.entity.entity_id());
    let row = match entry.max_retries {
        None => {
            let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 3] =
                [(&entity_type, Type::TEXT), (&entity_id, Type::TEXT), (&metadata, Type::JSONB)];
            client.query_typed_one(CREATE, &arguments).await?
        }
        Some(max_retries) => {
            let arguments: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
                (&entity_type, Type::TEXT),
                (&entity_id, Type::TEXT),
                (&metadata, Type::JSONB),
                (&max_retries, Type::INT4),
            ];
            client.query_typed_one(CREATE_WITH_MAX_RETRIES, &arguments).await?
        }
    };
    Ok(EntryId(row.try_get("id")?))
}
