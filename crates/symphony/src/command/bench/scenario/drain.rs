//! Relayers drain a backlog: from the first dispatch to the last recorded result.

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
    workload: &Workload,
) -> Result<Measurement, Failure> {
    fill(database, plan, workload).await?;
    let watch = database.watch().await?;
    let relayers = RelayerProcesses::start(database, plan, Recording::Nothing)?;
    let (work, usage) = drain(plan, relayers, watch).await?;
    Ok(Measurement::new(plan, workload.enqueued(), work.length, usage).with_relayers(&work))
}

/// Enqueues the backlog.
pub(super) async fn fill(database: &BenchDatabase, plan: &Plan, workload: &Workload) -> Result<(), Failure> {
    let (name, count) = (plan.scenario.name(), plan.count.unwrap_or_default());
    let filling = Plan { clients: PRODUCER_SESSIONS, batch: BATCH_SIZE, ..plan.clone() };
    let on_progress = |sent| progress::show(&format!("{name}: {sent} of {count} enqueued"));
    batch::fill(database, &filling, workload, on_progress).await.map(drop)
}

/// Waits until the relayers have recorded the whole backlog, and stops them. Returns what they and the server used.
pub(super) async fn drain(
    plan: &Plan,
    relayers: RelayerProcesses,
    watch: UsageWatch<'_>,
) -> Result<(RelayerUsage, (PostgresUsage, f64)), Failure> {
    let (name, count) = (plan.scenario.name(), plan.count.unwrap_or_default());
    relayers
        .wait_recorded(count, |recorded| progress::show(&format!("{name}: {recorded} of {count} recorded")))
        .await?;
    let work = relayers.stop().await?;
    let usage = watch.usage(count).await?;
    Ok((work, usage))
}
