//! Latency from commit to dispatch, and from the call to dispatch, at a steady rate from one session.

use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use super::super::clock;
use super::super::histogram::LatencyHistogram;
use super::{BenchDatabase, Failure, Measurement, Plan, Recording, RelayerProcesses, Workload};

/// A call that starts later than this counts from its planned time; timers tick in milliseconds.
const MAX_TIMER_DELAY: Duration = Duration::from_millis(2);
/// Calls within this time, at most a quarter of all, are warm-up and not counted.
const WARM_UP: Duration = Duration::from_secs(1);

/// The times of one call and its commit.
struct Call {
    name: String,
    called: u64,
    committed: u64,
}

pub(super) async fn run(
    database: &BenchDatabase,
    plan: &Plan,
    workload: &Workload,
) -> Result<Measurement, Failure> {
    let relayers = RelayerProcesses::start(database, plan, Recording::Dispatches)?;
    relayers.wait_listening().await?;
    let watch = database.watch().await?;
    let began = Instant::now();
    let calls = send(database, plan, workload).await?;
    let length = began.elapsed();
    let count = workload.enqueued();
    relayers.wait_recorded(count, |_| {}).await?;
    let work = relayers.stop().await?;
    let usage = watch.usage(count).await?;
    let rate = plan.rate.unwrap_or(1);
    let warm_up = usize::try_from(rate).unwrap_or_default() * usize::try_from(WARM_UP.as_secs()).unwrap_or(1);
    let (mut from_commit, mut from_call) = (LatencyHistogram::new()?, LatencyHistogram::new()?);
    for call in calls.iter().skip(warm_up.min(calls.len() / 4)) {
        let Some(dispatched) = work.times.get(&call.name) else {
            return Err(Failure::new(format!("{} was never dispatched", call.name)));
        };
        from_commit.record(Duration::from_nanos(dispatched.saturating_sub(call.committed)));
        from_call.record(Duration::from_nanos(dispatched.saturating_sub(call.called)));
    }
    let mut measured = Measurement::new(plan, count, length, usage).with_times("commit_to_dispatch", &from_commit);
    measured.call_to_dispatch = from_call.percentiles();
    Ok(measured.with_relayers(&work))
}

async fn send(database: &BenchDatabase, plan: &Plan, workload: &Workload) -> Result<Vec<Call>, Failure> {
    let session = workload.session(database.target().connect().await?).await?;
    let period = Duration::from_secs(1) / plan.rate.unwrap_or(1).max(1);
    let mut turns = tokio::time::interval(period);
    // Calls that a slow call delayed are still made: leaving them out would hide their latency.
    turns.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let end = Instant::now() + plan.length;
    let mut calls = Vec::new();
    while Instant::now() < end && plan.count.is_none_or(|count| workload.enqueued() < count) {
        let due = turns.tick().await;
        let late = due.elapsed();
        let late = if late > MAX_TIMER_DELAY { u64::try_from(late.as_nanos()).unwrap_or_default() } else { 0 };
        let called = clock::now().saturating_sub(late);
        let name = workload.enqueue(&session).await?;
        calls.push(Call { name, called, committed: clock::now() });
    }
    Ok(calls)
}
