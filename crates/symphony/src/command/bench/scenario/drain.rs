//! Relayers drain a backlog: from the first dispatch to the last recorded result.

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
    let count = plan.count.unwrap_or_default();
    let filling = Plan { clients: PRODUCER_SESSIONS, batch: BATCH_SIZE, ..plan.clone() };
    batch::fill(database, &filling, workload, |sent| {
        progress::show(&format!("drain: {sent} of {count} enqueued"));
    })
    .await?;
    let watch = database.watch().await?;
    let relayers = RelayerProcesses::start(database, plan, Recording::Nothing)?;
    relayers
        .wait_recorded(count, |recorded| progress::show(&format!("drain: {recorded} of {count} recorded")))
        .await?;
    let work = relayers.stop().await?;
    let usage = watch.usage(count).await?;
    Ok(Measurement::new(plan, count, work.length, usage).with_relayers(&work))
}
