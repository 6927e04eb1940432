//! The database's clock, for display. No decision may depend on it.

use jiff::Timestamp;
use tokio_postgres::GenericClient;

use crate::error::DatabaseError;

const NOW: &str = "select clock_timestamp()";

/// The database's time when it ran the statement.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn now(client: &impl GenericClient) -> Result<Timestamp, DatabaseError> {
    Ok(client.query_typed_one(NOW, &[]).await?.try_get(0)?)
}
