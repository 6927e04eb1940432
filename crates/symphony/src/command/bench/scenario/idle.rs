//! The resource usage of idle relayers.

use super::super::result::rounded;
use super::{BenchDatabase, Failure, Measurement, Plan, Recording, RelayerProcesses};

pub(super) async fn run(database: &BenchDatabase, plan: &Plan) -> Result<Measurement, Failure> {
    let relayers = RelayerProcesses::start(database, plan, Recording::Nothing)?;
    relayers.wait_listening().await?;
    let watch = database.watch().await?;
    let before = relayers.cpu_seconds();
    tokio::time::sleep(plan.length).await;
    let spent = relayers.cpu_seconds() - before;
    let (usage, own, transactions) = watch.usage_so_far(0).await?;
    let work = relayers.stop().await?;
    let measured = Measurement::new(plan, 0, plan.length, (usage, own)).with_relayers(&work);
    Ok(Measurement {
        transactions_per_second: Some(rounded(transactions / plan.length.as_secs_f64())),
        // Without the cost of start and shutdown.
        relayer_cpu_seconds: rounded(spent),
        ..measured
    })
}
