//! The database of a benchmark: row counts, rows of other applications, and server settings.
//!
//! It reads the tables as a superuser or their owner. Rails, aggregate types and entity types of a benchmark begin
//! with [`MARK`], so that its rows are distinct from all others.
//!
//! # Layout
//!
//! - this file: rows and settings
//! - [`resource_usage`]: CPU time, WAL and buffers of the server

pub mod resource_usage;

use std::collections::BTreeMap;

use symphony_db::schema::Lane;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Error, GenericClient};
use uuid::Uuid;

/// The prefix of the rails, aggregate types and entity types of a benchmark.
pub const MARK: &str = "BENCH";

const INSTALLED: &str = "select to_regclass($1) is not null";
const FOREIGN_PAYMENTS: &str = "
    select exists (select from symphony.payment_outbox_pending p where not starts_with(p.rail_type, $1))
        or exists (select from symphony.payment_outbox_attempts a where not starts_with(a.rail_type, $1))
        or exists (select from symphony.payment_rails r where not starts_with(r.rail_type, $1))";
const FOREIGN_EVENTS: &str = "
    select exists (select from m10_recovery.outbox o where not starts_with(o.aggregate_type, $1))";
const FOREIGN_ENTRIES: &str = "
    select exists (select from symphony.metadata_outbox o where not starts_with(o.entity_type, $1))";
// Counts each row once: a pending row has no terminal ledger row, and an ended row is not pending. The bound lets
// PostgreSQL leave out the partitions of a long ledger.
const PAYMENTS: &str = "
    select (select count(*) from symphony.payment_outbox_pending p where p.rail_type = $1) as open,
           (select count(*) from symphony.payment_outbox_attempts a where a.rail_type = $1 and a.state = 'DISPATCHED' and a.outbox_id >= $2) as ended";
const EVENTS: &str = "
    select count(*) filter (where o.processed_at is null) as open,
           count(*) filter (where o.processed_at is not null) as ended
    from m10_recovery.outbox o
    where o.aggregate_type = $1";
const ENTRIES: &str = "
    select count(*) filter (where o.status not in ('PUBLISHED', 'DLQ')) as open,
           count(*) filter (where o.status = 'PUBLISHED') as ended
    from symphony.metadata_outbox o
    where o.entity_type = $1";
const LOWER_BOUND_OF_NEW_PAYMENTS: &str = "select symphony.uuidv7_lower_bound(now())";
const OTHERS: &str = "
    select count(*)
    from pg_stat_activity a
    where a.datname = current_database()
      and a.backend_type = 'client backend'
      and a.pid <> pg_backend_pid()";
const SETTINGS: &str = "
    select s.name, current_setting(s.name) as value
    from pg_settings s
    where s.name in ('autovacuum', 'checkpoint_timeout', 'fsync', 'full_page_writes', 'max_connections', 'max_wal_size',
                     'shared_buffers', 'synchronous_commit', 'synchronous_standby_names', 'wal_buffers', 'wal_compression',
                     'wal_level', 'wal_sync_method', 'work_mem')
    order by s.name";
const VERSION: &str = "select current_setting('server_version')";
const CHECKPOINT: &str = "checkpoint";

/// Row counts of a benchmark.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rows {
    /// Rows that are due, scheduled or leased.
    pub open: u64,
    /// Rows that were dispatched or published.
    pub ended: u64,
}

/// Whether a lane is installed and has rows that do not belong to a benchmark.
///
/// # Errors
/// Any error of the database.
pub async fn is_foreign(superuser: &impl GenericClient, lane: Lane) -> Result<bool, Error> {
    let (table, query) = match lane {
        Lane::Payment => ("symphony.payment_outbox_pending", FOREIGN_PAYMENTS),
        Lane::Event => ("m10_recovery.outbox", FOREIGN_EVENTS),
        Lane::Metadata => ("symphony.metadata_outbox", FOREIGN_ENTRIES),
    };
    let installed: bool = superuser.query_typed_one(INSTALLED, &[(&table, Type::TEXT)]).await?.try_get(0)?;
    if !installed {
        return Ok(false);
    }
    superuser.query_typed_one(query, &[(&MARK, Type::TEXT)]).await?.try_get(0)
}

/// The row counts of this rail, aggregate type or entity type. Ended payments count from `first_payment`. It scans all
/// rows: do not call it during a measurement.
///
/// # Errors
/// Any error of the database.
pub async fn rows(
    superuser: &impl GenericClient,
    lane: Lane,
    name: &str,
    first_payment: Uuid,
) -> Result<Rows, Error> {
    let name = (&name as _, Type::TEXT);
    let row = match lane {
        Lane::Payment => superuser.query_typed_one(PAYMENTS, &[name, (&first_payment, Type::UUID)]).await?,
        Lane::Event => superuser.query_typed_one(EVENTS, &[name]).await?,
        Lane::Metadata => superuser.query_typed_one(ENTRIES, &[name]).await?,
    };
    let count = |column| row.try_get::<_, i64>(column).map(i64::unsigned_abs);
    Ok(Rows { open: count("open")?, ended: count("ended")? })
}

/// A lower bound of the ids of payments that are enqueued from now on.
///
/// # Errors
/// Any error of the database.
pub async fn lower_bound_of_new_payments(superuser: &impl GenericClient) -> Result<Uuid, Error> {
    superuser.query_typed_one(LOWER_BOUND_OF_NEW_PAYMENTS, &[]).await?.try_get(0)
}

/// Begins a transaction with a snapshot and a transaction id, which holds the xmin horizon.
///
/// # Errors
/// Any error of the database.
pub async fn hold_snapshot(client: &Client) -> Result<(), Error> {
    client.batch_execute("begin isolation level repeatable read; select pg_current_xact_id()").await
}

/// The number of other sessions in this database.
///
/// # Errors
/// Any error of the database.
pub async fn other_sessions(client: &impl GenericClient) -> Result<i64, Error> {
    client.query_typed_one(OTHERS, &[]).await?.try_get(0)
}

/// The version of the server, without the suffix of its packager.
///
/// # Errors
/// Any error of the database.
pub async fn version(client: &impl GenericClient) -> Result<String, Error> {
    let version: String = client.query_typed_one(VERSION, &[]).await?.try_get(0)?;
    Ok(version.split_whitespace().next().unwrap_or_default().to_owned())
}

/// The settings that decide the speed and the durability of a server.
///
/// # Errors
/// Any error of the database.
pub async fn settings(client: &impl GenericClient) -> Result<BTreeMap<String, String>, Error> {
    let rows = client.query_typed(SETTINGS, &[]).await?;
    rows.iter().map(|row| Ok((row.try_get("name")?, row.try_get("value")?))).collect()
}

/// Requests a checkpoint, so that none happens during a measurement. Ignores a missing privilege.
pub async fn checkpoint(client: &impl GenericClient) {
    let _ = client.batch_execute(CHECKPOINT).await;
}
