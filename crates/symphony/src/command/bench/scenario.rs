//! The scenarios: each enqueues, runs relayers, and measures throughput, latency and resource usage.

mod batch;
mod deliver;
mod drain;
mod enqueue;
mod idle;
mod latency;
mod mixed;
mod producer_threads;
mod producers;

use std::sync::Arc;

use super::destination::Destination;
use super::plan::{Plan, Scenario};
use super::relayer_processes::{Recording, RelayerProcesses};
use super::result::Measurement;
use super::server::{BenchDatabase, BenchServer};
use super::workload::Workload;
use crate::failure::Failure;

/// Runs one measurement. `destination` is that of the deliver scenario.
pub(super) async fn measure(
    server: &BenchServer,
    plan: &Plan,
    destination: Option<&Destination>,
) -> Result<Measurement, Failure> {
    let database = server.database(plan.ledger).await?;
    database.open(plan.lane, plan.ordered).await?;
    let workload = Arc::new(plan.workload());
    let before = database.rows(plan.lane, workload.name()).await?;
    let measured = match plan.scenario {
        Scenario::Enqueue => enqueue::run(&database, plan, &workload).await?,
        Scenario::Batch => batch::run(&database, plan, &workload).await?,
        Scenario::Drain => drain::run(&database, plan, &workload).await?,
        Scenario::Deliver => match destination {
            Some(destination) => deliver::run(&database, plan, &workload, destination).await?,
            None => return Err(Failure::new("the deliver scenario has no destination")),
        },
        Scenario::Latency => latency::run(&database, plan, &workload).await?,
        Scenario::Mixed => mixed::run(&database, plan, &workload).await?,
        Scenario::Idle => idle::run(&database, plan).await?,
    };
    let after = database.rows(plan.lane, workload.name()).await?;
    let (found, sent) = ((after.open + after.ended) - (before.open + before.ended), workload.enqueued());
    if found != sent {
        return Err(Failure::new(format!("{sent} rows were enqueued, but the database holds {found} of them")));
    }
    if matches!(plan.scenario, Scenario::Drain | Scenario::Deliver) && after.open > 0 {
        return Err(Failure::new(format!("{} of {sent} rows are still pending", after.open)));
    }
    if !database.is_scratch() && after.open > 0 {
        clear(&database, plan, &workload).await?;
    }
    server.release(database).await?;
    Ok(measured)
}

/// Drains the remaining rows, so that the next measurement starts with an empty outbox.
async fn clear(database: &BenchDatabase, plan: &Plan, workload: &Workload) -> Result<(), Failure> {
    let open = database.rows(plan.lane, workload.name()).await?.open;
    let relayers = RelayerProcesses::start(
        database,
        &Plan { relayers: plan.relayers.max(1), ..plan.clone() },
        Recording::Nothing,
    )?;
    relayers.wait_recorded(open, |_| {}).await?;
    relayers.stop().await.map(drop)
}
