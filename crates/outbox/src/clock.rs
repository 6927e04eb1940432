//! What time the database has: for people to compare, and for nothing to be decided by.

use jiff::Timestamp;
use tokio_postgres::GenericClient;

use crate::error::Fault;

const NOW: &str = "select clock_timestamp()";

/// The time by the database's clock when the question arrived there.
///
/// # Errors
///
/// See [`Fault`].
pub async fn now(client: &impl GenericClient) -> Result<Timestamp, Fault> {
    Ok(client.query_typed_one(NOW, &[]).await?.try_get(0)?)
}
