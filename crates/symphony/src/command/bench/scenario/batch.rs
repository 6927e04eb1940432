//! Batches: many enqueues per transaction, in a few concurrent sessions.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::super::histogram::LatencyHistogram;
use super::super::workload::ProducerSession;
use super::producer_threads::ProducerThreads;
use super::{BenchDatabase, Failure, Measurement, Plan, Recording, RelayerProcesses, Workload};

pub(super) async fn run(
    database: &BenchDatabase,
    plan: &Plan,
    workload: &Arc<Workload>,
) -> Result<Measurement, Failure> {
    let relayers = RelayerProcesses::start(database, plan, Recording::Nothing)?;
    relayers.wait_listening().await?;
    let watch = database.watch().await?;
    let (length, times) = fill(database, plan, workload, |_| {}).await?;
    let work = relayers.stop().await?;
    let usage = watch.usage(workload.enqueued()).await?;
    let measured = Measurement::new(plan, workload.enqueued(), length, usage);
    Ok(measured.with_times("transaction", &times).with_relayers(&work))
}

/// Enqueues the planned rows, and reports progress. Returns the total time and the latency of each transaction.
pub(super) async fn fill(
    database: &BenchDatabase,
    plan: &Plan,
    workload: &Arc<Workload>,
    on_progress: impl Fn(u64) + Clone + Send + Sync + 'static,
) -> Result<(Duration, LatencyHistogram), Failure> {
    let threads = ProducerThreads::start(plan.clients)?;
    let open = |_| {
        let (target, workload) = (Arc::clone(database.target()), Arc::clone(workload));
        async move { workload.session(target.connect().await?).await }
    };
    let producers = threads.run((0..plan.clients).map(open)).await?;
    let left = Arc::new(AtomicU64::new(plan.count.unwrap_or_default()));
    let (all, batch) = (u64::try_from(producers.len()).unwrap_or(u64::MAX), plan.batch);
    let began = Instant::now();
    let work = (0..).zip(producers).map(|(number, mut session)| {
        let (workload, left, on_progress) = (Arc::clone(workload), Arc::clone(&left), on_progress.clone());
        async move { one(&mut session, &workload, batch, &left, (number, all), &on_progress).await }
    });
    let all = threads.run(work).await?;
    let length = began.elapsed();
    let mut times = LatencyHistogram::new()?;
    for one in &all {
        times.merge(one)?;
    }
    Ok((length, times))
}

async fn one(
    session: &mut ProducerSession,
    workload: &Workload,
    batch: u64,
    left: &AtomicU64,
    place: (u64, u64),
    on_progress: &impl Fn(u64),
) -> Result<LatencyHistogram, Failure> {
    let mut times = LatencyHistogram::new()?;
    loop {
        let take = |left: u64| (left > 0).then(|| left.saturating_sub(batch));
        let Ok(before) = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) else {
            return Ok(times);
        };
        let called = Instant::now();
        workload.enqueue_many(session, before.min(batch), place).await?;
        times.record(called.elapsed());
        on_progress(workload.enqueued());
    }
}
