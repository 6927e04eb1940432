//! Relayers that have nothing to do, and what they take all the same.

use super::super::result::rounded;
use super::{Course, Failure, Fleet, Measurement, Notes, Plan};

pub(super) async fn run(course: &Course, plan: &Plan) -> Result<Measurement, Failure> {
    let fleet = Fleet::start(course, plan, Notes::Nothing)?;
    fleet.listen().await?;
    let watch = course.watch().await?;
    let before = fleet.cpu_seconds();
    tokio::time::sleep(plan.length).await;
    let spent = fleet.cpu_seconds() - before;
    let (share, own, transactions) = watch.so_far(0).await?;
    let work = fleet.stop().await?;
    let measured = Measurement::new(plan, 0, plan.length, (share, own)).with_relayers(&work);
    Ok(Measurement {
        transactions_per_second: Some(rounded(transactions / plan.length.as_secs_f64())),
        // Without what it takes to start and to end.
        relayer_cpu_seconds: rounded(spent),
        ..measured
    })
}
