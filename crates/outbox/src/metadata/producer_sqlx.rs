//! Creating entries over sqlx: the same as over tokio-postgres.

use sqlx::types::Json;
use sqlx::{PgConnection, Row as _};

use super::entry::{CREATE, CREATE_BOUNDED};
use super::{Entry, EntryId};
use crate::error::metadata::CreateError;

/// Creates one entry. Give it the transaction that writes the entity.
///
/// # Errors
///
/// See [`CreateError`]. The transaction has failed then, as after any error of PostgreSQL.
pub async fn create(connection: &mut PgConnection, entry: &Entry) -> Result<EntryId, CreateError> {
    let query = sqlx::query(if entry.max_retries.is_some() { CREATE_BOUNDED } else { CREATE })
        .bind(entry.entity.entity_type())
        .bind(entry.entity.entity_id())
        .bind(Json(entry.metadata.raw()));
    let query = if let Some(most) = entry.max_retries { query.bind(most) } else { query };
    let row = query.persistent(false).fetch_one(connection).await?;
    Ok(EntryId(row.try_get("id")?))
}
