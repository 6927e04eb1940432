//! Relayers drain a backlog to a real destination, which must have received every row of it.

use std::sync::Arc;

use super::super::destination::Destination;
use super::super::histogram::LatencyHistogram;
use super::super::result::rounded;
use super::{BenchDatabase, Failure, Measurement, Plan, Recording, RelayerProcesses, Workload, drain};

pub(super) async fn run(
    database: &BenchDatabase,
    plan: &Plan,
    workload: &Arc<Workload>,
    destination: &Destination,
) -> Result<Measurement, Failure> {
    drain::fill(database, plan, workload).await?;
    let received_before = destination.received().await?;
    let watch = database.watch().await?;
    let cpu_before = destination.cpu_seconds();
    let settings = destination.relayer_settings(plan, workload.name());
    let relayers = RelayerProcesses::start_with_settings(database, plan, Recording::Latencies, &settings)?;
    let (work, usage) = drain::drain(plan, relayers, watch, None).await?;
    let cpu_seconds = destination.cpu_seconds().zip(cpu_before).map(|(after, before)| rounded(after - before));
    let (sent, received) = (workload.enqueued(), destination.received().await?.saturating_sub(received_before));
    if received != sent {
        let name = destination.name();
        return Err(Failure::new(format!(
            "{sent} rows are recorded as delivered, but {name} received {received}"
        ))
        .hint("more than that are repeats, fewer are lost; either way there is no figure"));
    }
    if plan.ordered
        && let Some(row) = destination.first_out_of_order().await?
    {
        return Err(Failure::new(format!("{} received {row} after a later one", destination.name())));
    }
    let mut latencies = LatencyHistogram::new()?;
    for (_, latency) in &work.durations {
        latencies.record(*latency);
    }
    let measured = Measurement::new(plan, sent, work.length, usage).with_times("dispatch", &latencies);
    Ok(Measurement {
        destination: Some(destination.name()),
        received: Some(received),
        destination_cpu_seconds: cpu_seconds,
        ..measured.with_relayers(&work)
    })
}
