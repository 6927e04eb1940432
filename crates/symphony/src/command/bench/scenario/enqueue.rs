//! Single enqueues, each in its own transaction, while relayers listen.

use std::sync::Arc;

use super::producers::Producers;
use super::{BenchDatabase, Failure, Measurement, Plan, Recording, RelayerProcesses, Workload};

pub(super) async fn run(
    database: &BenchDatabase,
    plan: &Plan,
    workload: &Arc<Workload>,
) -> Result<Measurement, Failure> {
    let relayers = RelayerProcesses::start(database, plan, Recording::Nothing)?;
    relayers.wait_listening().await?;
    let producers = Producers::open(database, plan, workload).await?;
    let watch = database.watch().await?;
    let sent = producers.send(plan, workload).await?;
    let work = relayers.stop().await?;
    let usage = watch.usage(sent.count).await?;
    let measured = Measurement::new(plan, sent.count, sent.length, usage);
    Ok(measured.with_times("call", &sent.times).with_relayers(&work))
}
