//! Lists the partitions of the ledger.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;

use crate::OutboxId;
use crate::error::DatabaseError;

const PARTITIONS: &str = "\
    select p.partition_name, p.from_id, p.to_id, p.starts_at, p.ends_at, p.is_searchable, p.is_detaching, \
           pg_catalog.pg_total_relation_size(pg_catalog.format('symphony.%I', p.partition_name)::regclass) as size_bytes \
    from symphony.payment_ledger_partitions() p \
    order by p.starts_at nulls first";
const AHEAD: &str =
    "select count(*) as ahead from symphony.payment_ledger_partitions() p where p.starts_at > now()";

/// A partition of the ledger.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LedgerPartition {
    /// Its table.
    pub partition_name: String,
    /// The lowest outbox id that it holds; none for the first.
    pub from_id: Option<OutboxId>,
    /// It holds lower outbox ids than this; none for the last.
    pub to_id: Option<OutboxId>,
    /// It holds what was enqueued from here on; none for the first.
    pub starts_at: Option<Timestamp>,
    /// It holds what was enqueued before this; none for the last.
    pub ends_at: Option<Timestamp>,
    /// Whether searches by participant have an index there.
    pub is_searchable: bool,
    /// Whether its detaching was interrupted: statements no longer read or write it.
    pub is_detaching: bool,
    /// Its size with indexes and large payloads.
    pub size_bytes: i64,
}

/// The partitions of the ledger, the oldest first.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn ledger_partitions(client: &impl GenericClient) -> Result<Vec<LedgerPartition>, DatabaseError> {
    let rows = client.query_typed(PARTITIONS, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(LedgerPartition {
                partition_name: row.try_get("partition_name")?,
                from_id: row.try_get("from_id")?,
                to_id: row.try_get("to_id")?,
                starts_at: row.try_get("starts_at")?,
                ends_at: row.try_get("ends_at")?,
                is_searchable: row.try_get("is_searchable")?,
                is_detaching: row.try_get("is_detaching")?,
                size_bytes: row.try_get("size_bytes")?,
            })
        })
        .collect()
}

/// How many partitions of the ledger start in the future.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn partitions_ahead(client: &impl GenericClient) -> Result<i64, DatabaseError> {
    let rows = client.query_typed(AHEAD, &[]).await?;
    rows.first().map_or(Ok(0), |row| Ok(row.try_get("ahead")?))
}
