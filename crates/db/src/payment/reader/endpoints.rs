//! The endpoints that operators declared to be the same bank.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;

use crate::error::DatabaseError;

const SAME_ENDPOINTS: &str = "\
    select rail_type, endpoint, same_as, declared_by, reason, declared_at \
    from symphony.payment_same_endpoints \
    order by rail_type, declared_at, endpoint, same_as";

/// Two endpoints of a rail that an operator declared to be the same bank.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct SameEndpoint {
    /// The rail.
    pub rail_type: String,
    /// An endpoint, as the ledger names it.
    pub endpoint: String,
    /// Another endpoint of the same bank.
    pub same_as: String,
    /// The operator who declared it.
    pub declared_by: String,
    /// How they know.
    pub reason: String,
    /// When they declared it.
    pub declared_at: Timestamp,
}

/// The declarations of all rails that were not revoked. The audit log has those that were.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn same_endpoints(client: &impl GenericClient) -> Result<Vec<SameEndpoint>, DatabaseError> {
    let rows = client.query_typed(SAME_ENDPOINTS, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(SameEndpoint {
                rail_type: row.try_get("rail_type")?,
                endpoint: row.try_get("endpoint")?,
                same_as: row.try_get("same_as")?,
                declared_by: row.try_get("declared_by")?,
                reason: row.try_get("reason")?,
                declared_at: row.try_get("declared_at")?,
            })
        })
        .collect()
}
