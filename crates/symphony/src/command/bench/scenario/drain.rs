//! Relayers drain a backlog: from the first dispatch to the last recorded result.

use std::sync::Arc;

use tokio_postgres::Client;

use super::super::relayer_processes::RelayerUsage;
use super::super::result::PostgresUsage;
use super::super::server::UsageWatch;
use super::{BenchDatabase, Failure, Measurement, Plan, Recording, RelayerProcesses, Workload, batch};
use crate::progress;

/// How the backlog is enqueued, which is not timed.
const PRODUCER_SESSIONS: usize = 2;
const BATCH_SIZE: u64 = 500;

pub(super) async fn run(
    database: &BenchDatabase,
    plan: &Plan,
    workload: &Arc<Workload>,
) -> Result<Measurement, Failure> {
    let snapshot = if plan.hold_snapshot { Some(database.hold_snapshot().await?) } else { None };
    fill(database, plan, workload).await?;
    let watch = database.watch().await?;
    let relayers = RelayerProcesses::start(database, plan, Recording::Nothing)?;
    let (work, usage) = drain(plan, relayers, watch, snapshot).await?;
    Ok(Measurement::new(plan, workload.enqueued(), work.length, usage).with_relayers(&work))
}

/// Enqueues the backlog.
pub(super) async fn fill(database: &BenchDatabase, plan: &Plan, workload: &Arc<Workload>) -> Result<(), Failure> {
    let (name, count) = (plan.scenario.name(), plan.count.unwrap_or_default());
    let filling = Plan { clients: PRODUCER_SESSIONS, batch: BATCH_SIZE, ..plan.clone() };
    let on_progress = move |sent| progress::show(&format!("{name}: {sent} of {count} enqueued"));
    batch::fill(database, &filling, workload, on_progress).await.map(drop)
}

/// Waits until the relayers have recorded the whole backlog, and stops them. `snapshot` is the session that holds one. Returns what they and the server used.
pub(super) async fn drain(
    plan: &Plan,
    relayers: RelayerProcesses,
    watch: UsageWatch<'_>,
    snapshot: Option<Client>,
) -> Result<(RelayerUsage, (PostgresUsage, f64)), Failure> {
    let (name, count) = (plan.scenario.name(), plan.count.unwrap_or_default());
    relayers
        .wait_recorded(count, |recorded| progress::show(&format!("{name}: {recorded} of {count} recorded")))
        .await?;
    let work = relayers.stop().await?;
    // The usage is complete when all other sessions have ended.
    drop(snapshot);
    let usage = watch.usage(count).await?;
    Ok((work, usage))
}
