//! Reads the archives of the ledger: which partitions are due, what keeps one from it, and where rows are now.

use jiff::Timestamp;
use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;
use uuid::Uuid;

use crate::OutboxId;
use crate::error::{DatabaseError, OperateError};

const TO_ARCHIVE: &str = "\
    select l.partition_name, l.from_id, l.to_id, l.starts_at, l.ends_at, l.is_detaching, \
           pg_catalog.pg_total_relation_size(pg_catalog.format('symphony.%I', l.partition_name)::regclass) as size_bytes \
    from symphony.list_partitions_to_archive($1) l";
const DUE_AGE: &str = "\
    select coalesce(extract(epoch from now() - min(l.due_at)), 0)::float8 from symphony.list_partitions_to_archive() l";
const BLOCKERS: &str = "select blocker, outboxes, outbox_ids from symphony.list_archive_blockers($1)";
const ARCHIVED: &str = "\
    select archive_id, archive_name, partition_name, from_id, to_id, row_count, content_digest, manifest_digest, location, actor, reason, \
           database_user, archived_at, is_kept \
    from symphony.archived_ledger_partitions \
    order by archived_at, archive_id";
const ARCHIVED_OUTBOXES: &str = "\
    select outbox_id, instruction_id, idempotency_key, is_registered, archive_name, location, archived_at \
    from symphony.find_archived_outboxes($1)";

/// A partition of the ledger that is past its retention.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartitionToArchive {
    /// Its table.
    pub partition_name: String,
    /// The lowest outbox id that it holds; none for the first.
    pub from_id: Option<OutboxId>,
    /// It holds lower outbox ids than this.
    pub to_id: OutboxId,
    /// It holds what was enqueued from here on; none for the first.
    pub starts_at: Option<Timestamp>,
    /// It holds what was enqueued before this.
    pub ends_at: Timestamp,
    /// Whether its detaching was interrupted.
    pub is_detaching: bool,
    /// Its size with indexes and large payloads.
    pub size_bytes: i64,
}

/// What keeps a partition from being archived.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArchiveBlocker {
    /// `PENDING`, `UNKNOWN_OUTCOME`, `DEAD_LETTER`, `HELD_STREAM` or `REDRIVE_PENDING`.
    pub blocker: String,
    /// How many outboxes.
    pub outboxes: i64,
    /// The first ten of them.
    pub outbox_ids: Vec<OutboxId>,
}

/// A recorded archive of a partition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArchivedPartition {
    /// Its id.
    pub archive_id: Uuid,
    /// The name of its folder.
    pub archive_name: String,
    /// The partition.
    pub partition_name: String,
    /// The lowest outbox id that it holds; none for the first.
    pub from_id: Option<OutboxId>,
    /// It holds lower outbox ids than this.
    pub to_id: OutboxId,
    /// How many rows it has.
    pub row_count: i64,
    /// The digest of its rows, in hexadecimal digits.
    pub content_digest: String,
    /// SHA-256 of its manifest, in hexadecimal digits.
    pub manifest_digest: String,
    /// Where it was written.
    pub location: String,
    /// Who archived it.
    pub actor: String,
    /// Why.
    pub reason: String,
    /// The login.
    pub database_user: String,
    /// When it was recorded.
    pub archived_at: Timestamp,
    /// Whether the table is still to be dropped.
    pub is_kept: bool,
}

/// An outbox whose ledger rows are in an archive.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ArchivedOutbox {
    /// The outbox.
    pub outbox_id: OutboxId,
    /// Its instruction, if the key registry still has it.
    pub instruction_id: Option<String>,
    /// Its idempotency key, if the registry still has it.
    pub idempotency_key: Option<String>,
    /// Whether the registry has it. If not, the archive has the rows of its time, and may or may not have this outbox.
    pub is_registered: bool,
    /// The name of the archive.
    pub archive_name: String,
    /// Where the archive was written.
    pub location: String,
    /// When.
    pub archived_at: Timestamp,
}

/// The partitions that are past their retention, the oldest first; with `before` only those that end by then.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn partitions_to_archive(
    client: &impl GenericClient,
    before: Option<Timestamp>,
) -> Result<Vec<PartitionToArchive>, DatabaseError> {
    let rows = client.query_typed(TO_ARCHIVE, &[(&before, Type::TIMESTAMPTZ)]).await?;
    rows.iter()
        .map(|row| {
            Ok(PartitionToArchive {
                partition_name: row.try_get("partition_name")?,
                from_id: row.try_get("from_id")?,
                to_id: row.try_get("to_id")?,
                starts_at: row.try_get("starts_at")?,
                ends_at: row.try_get("ends_at")?,
                is_detaching: row.try_get("is_detaching")?,
                size_bytes: row.try_get("size_bytes")?,
            })
        })
        .collect()
}

/// For how many seconds the oldest partition has been due for its archive; 0 if none is.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn archive_due_age(client: &impl GenericClient) -> Result<f64, DatabaseError> {
    Ok(client.query_typed_one(DUE_AGE, &[]).await?.try_get(0)?)
}

/// What keeps this partition from being archived; nothing if it can be.
///
/// # Errors
///
/// See [`OperateError`].
pub async fn archive_blockers(
    client: &impl GenericClient,
    partition_name: &str,
) -> Result<Vec<ArchiveBlocker>, OperateError> {
    let rows = client.query_typed(BLOCKERS, &[(&partition_name, Type::TEXT)]).await?;
    rows.iter()
        .map(|row| {
            Ok(ArchiveBlocker {
                blocker: row.try_get("blocker")?,
                outboxes: row.try_get("outboxes")?,
                outbox_ids: row.try_get("outbox_ids")?,
            })
        })
        .collect()
}

/// The archives of the ledger, the oldest record first.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn archived_partitions(client: &impl GenericClient) -> Result<Vec<ArchivedPartition>, DatabaseError> {
    let rows = client.query_typed(ARCHIVED, &[]).await?;
    rows.iter()
        .map(|row| {
            Ok(ArchivedPartition {
                archive_id: row.try_get("archive_id")?,
                archive_name: row.try_get("archive_name")?,
                partition_name: row.try_get("partition_name")?,
                from_id: row.try_get("from_id")?,
                to_id: row.try_get("to_id")?,
                row_count: row.try_get("row_count")?,
                content_digest: row.try_get("content_digest")?,
                manifest_digest: row.try_get("manifest_digest")?,
                location: row.try_get("location")?,
                actor: row.try_get("actor")?,
                reason: row.try_get("reason")?,
                database_user: row.try_get("database_user")?,
                archived_at: row.try_get("archived_at")?,
                is_kept: row.try_get("is_kept")?,
            })
        })
        .collect()
}

/// The archives of what this outbox id, instruction id or idempotency key names.
///
/// # Errors
///
/// See [`DatabaseError`].
pub async fn archived_outboxes(
    client: &impl GenericClient,
    id: &str,
) -> Result<Vec<ArchivedOutbox>, DatabaseError> {
    let rows = client.query_typed(ARCHIVED_OUTBOXES, &[(&id, Type::TEXT)]).await?;
    rows.iter()
        .map(|row| {
            Ok(ArchivedOutbox {
                outbox_id: row.try_get("outbox_id")?,
                instruction_id: row.try_get("instruction_id")?,
                idempotency_key: row.try_get("idempotency_key")?,
                is_registered: row.try_get("is_registered")?,
                archive_name: row.try_get("archive_name")?,
                location: row.try_get("location")?,
                archived_at: row.try_get("archived_at")?,
            })
        })
        .collect()
}
