//! Creates metadata entries over sqlx, with the same call as [`tokio_postgres`](mod@super::tokio_postgres).

use sqlx::types::Json;
use sqlx::{PgConnection, Row as _};

use super::entry::{CREATE, CREATE_WITH_MAX_RETRIES};
use super::{Entry, EntryId};
use crate::error::CreateError;

/// Creates one entry. Pass the transaction that writes the entity (`&mut transaction`).
///
/// # Errors
///
/// See [`CreateError`]. The transaction has then failed, as after any PostgreSQL error.
pub async fn create(connection: &mut PgConnection, entry: &Entry) -> Result<EntryId, CreateError> {
    let query = sqlx::query(if entry.max_retries.is_some() { CREATE_WITH_MAX_RETRIES } else { CREATE })
        .bind(entry.entity.entity_type())
        .bind(entry.entity.entity_id())
        .bind(Json(entry.metadata.raw()));
    let query = if let Some(max_retries) = entry.max_retries { query.bind(max_retries) } else { query };
    let row = query.persistent(false).fetch_one(connection).await?;
    Ok(EntryId(row.try_get("id")?))
}
