//! The calls of `symphony archive`: reads the rows of a partition, records its archive, detaches and drops it.
//!
//! Only the owner of the ledger may detach a partition, and `DETACH PARTITION … CONCURRENTLY` runs in no function and no
//! transaction. So the login becomes `symphony_control` for its session; see [`become_owner`](crate::schema::owner::become_owner).

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient, RowStream};
use uuid::Uuid;

use super::operator::AuditContext;
use crate::OutboxId;
use crate::error::{DatabaseError, OperateError};

const ROWS: &str = "\
    select row_to_json(a)::text \
    from symphony.payment_outbox_attempts a \
    where a.outbox_id >= $1 and a.outbox_id < $2 \
    order by a.outbox_id, a.attempt_no";
const RECORD: &str = "select symphony.record_ledger_archive($1, $2, $3, $4, $5, $6, $7, $8, $9)";
const DROP: &str = "select symphony.drop_archived_partition($1, $2, $3)";
const ATTACH_FIRST: &str = "select symphony.attach_first_partition()";
const DATABASE: &str = "select current_database()::text";

/// How long the record of an archive waits for open enqueues.
const OPEN_ENQUEUE_TIMEOUT_MS: i32 = 60_000;

/// What was read back from an archive.
#[derive(Clone, Copy, Debug)]
pub struct ReadBack<'a> {
    /// The partition.
    pub partition_name: &'a str,
    /// The name of the archive.
    pub archive_name: &'a str,
    /// How many rows the archive has.
    pub row_count: i64,
    /// Their digest, as `ledger_partition_digest` computes it.
    pub content_digest: &'a [u8],
    /// SHA-256 of the manifest.
    pub manifest_digest: &'a [u8],
    /// Where it is.
    pub location: &'a str,
}

/// The name of the database, for the manifest.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn database_name(client: &impl GenericClient) -> Result<String, DatabaseError> {
    Ok(client.query_typed_one(DATABASE, &[]).await?.try_get(0)?)
}

/// The rows of a range of outboxes as JSON, in order. They arrive as they are read.
///
/// # Errors
///
/// If the query fails.
pub async fn rows(
    client: &Client,
    from_id: Option<OutboxId>,
    to_id: OutboxId,
) -> Result<RowStream, DatabaseError> {
    let from_id = from_id.map_or(Uuid::nil(), |id| id.0);
    let parameters: [(&(dyn ToSql + Sync), Type); 2] = [(&from_id, Type::UUID), (&to_id.0, Type::UUID)];
    Ok(client.query_typed_raw(ROWS, parameters).await?)
}

/// Records an archive that was read back. The database compares it with the partition.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn record(
    client: &impl GenericClient,
    archive: ReadBack<'_>,
    audit: AuditContext<'_>,
) -> Result<Uuid, OperateError> {
    let row = client
        .query_typed_one(
            RECORD,
            &[
                (&archive.partition_name, Type::TEXT),
                (&archive.archive_name, Type::TEXT),
                (&archive.row_count, Type::INT8),
                (&archive.content_digest, Type::BYTEA),
                (&archive.manifest_digest, Type::BYTEA),
                (&archive.location, Type::TEXT),
                (&audit.actor, Type::TEXT),
                (&audit.reason, Type::TEXT),
                (&OPEN_ENQUEUE_TIMEOUT_MS, Type::INT4),
            ],
        )
        .await?;
    Ok(row.try_get(0)?)
}

/// Detaches a partition without blocking other statements, or completes a detaching that was interrupted.
///
/// It waits for transactions that use the ledger. If that takes longer than the lock timeout, the partition stays in
/// between: no statement reads or writes it, and the next call completes it.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn detach(client: &Client, partition_name: &str, is_detaching: bool) -> Result<(), DatabaseError> {
    // DDL has no parameters.
    let name = partition_name.replace('"', "\"\"");
    let how = if is_detaching { "finalize" } else { "concurrently" };
    let detach =
        format!("alter table symphony.payment_outbox_attempts detach partition symphony.\"{name}\" {how}");
    Ok(client.batch_execute(&detach).await?)
}

/// Drops the detached table of an archive.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn drop_partition(
    client: &impl GenericClient,
    archive_id: Uuid,
    audit: AuditContext<'_>,
) -> Result<(), OperateError> {
    client
        .query_typed_one(
            DROP,
            &[(&archive_id, Type::UUID), (&audit.actor, Type::TEXT), (&audit.reason, Type::TEXT)],
        )
        .await?;
    Ok(())
}

/// Gives the ledger an empty first partition, if it has none. Returns its name if it was attached.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn attach_first_partition(client: &impl GenericClient) -> Result<Option<String>, OperateError> {
    Ok(client.query_typed_one(ATTACH_FIRST, &[]).await?.try_get(0)?)
}
