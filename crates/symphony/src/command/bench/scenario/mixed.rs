//! Enqueues and relayers at once: throughput of both, the backlog, and claim latency over time.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, interval_at};

use super::super::clock;
use super::super::histogram::LatencyHistogram;
use super::super::result::{Interval, rate};
use super::producers::Producers;
use super::{BenchDatabase, Failure, Measurement, Plan, Recording, RelayerProcesses, Workload};

/// The run is divided into this many intervals.
const INTERVALS: u32 = 10;

pub(super) async fn run(
    database: &BenchDatabase,
    plan: &Plan,
    workload: &Arc<Workload>,
) -> Result<Measurement, Failure> {
    let relayers = RelayerProcesses::start(database, plan, Recording::Claims)?;
    relayers.wait_listening().await?;
    let producers = Producers::open(database, plan, workload).await?;
    let snapshot = if plan.hold_snapshot { Some(database.hold_snapshot().await?) } else { None };
    let watch = database.watch().await?;
    let before = relayers.recorded()?;
    let interval = plan.length / INTERVALS;
    let began = clock::now();
    let behind = || Ok::<_, Failure>(workload.enqueued().saturating_sub(relayers.recorded()?));
    let mut backlogs = Vec::new();
    let sent = {
        let mut ends = interval_at(Instant::now() + interval, interval);
        let sending = producers.send(plan, workload);
        tokio::pin!(sending);
        loop {
            tokio::select! {
                sent = &mut sending => break sent?,
                _ = ends.tick() => backlogs.push(behind()?),
            }
        }
    };
    let (recorded, backlog) = (relayers.recorded()?, behind()?);
    drop(snapshot);
    let work = relayers.stop().await?;
    let usage = watch.usage(sent.count).await?;
    let measured = Measurement::new(plan, recorded - before, sent.length, usage);
    Ok(Measurement {
        enqueued: Some(sent.count),
        enqueued_per_second: Some(rate(sent.count, sent.length)),
        backlog: Some(backlog),
        intervals: if plan.count.is_none() {
            intervals(&work.durations, began, interval, &backlogs)?
        } else {
            Vec::new()
        },
        ..measured.with_times("call", &sent.times).with_relayers(&work)
    })
}

/// Claim latency per interval, and the backlog at its end.
fn intervals(
    claims: &[(u64, Duration)],
    began: u64,
    interval: Duration,
    backlogs: &[u64],
) -> Result<Vec<Interval>, Failure> {
    let mut times = vec![LatencyHistogram::new()?; INTERVALS as usize];
    for (answered, took) in claims {
        let after = Duration::from_nanos(answered.saturating_sub(began));
        let place = after.as_nanos() / interval.as_nanos().max(1);
        if let Some(times) = usize::try_from(place).ok().and_then(|place| times.get_mut(place)) {
            times.record(*took);
        }
    }
    let ends = (1..).map(|number| (interval * number).as_secs_f64());
    let all = times.iter().zip(ends).enumerate();
    let intervals = all.filter_map(|(place, (times, until_seconds))| {
        let of = times.percentiles()?;
        Some(Interval {
            until_seconds,
            claims: times.count(),
            claim_p50_ms: of.p50_ms,
            claim_p99_ms: of.p99_ms,
            backlog: backlogs.get(place).copied(),
        })
    });
    Ok(intervals.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn claims_are_counted_in_the_stretch_in_which_they_were_answered() {
        let second = 1_000_000_000;
        let claims: Vec<_> = (0..30).map(|n| (n * second / 3, Duration::from_millis(1 + n))).collect();
        let found = intervals(&claims, 0, Duration::from_secs(1), &[7, 8]).unwrap();
        assert_eq!(found.len(), 10);
        assert!(found.iter().all(|interval| interval.claims == 3));
        assert_eq!(found[0].backlog, Some(7));
        assert_eq!(found[2].backlog, None);
        assert!((found[9].claim_p99_ms - 30.0).abs() < 0.1 && (found[9].until_seconds - 10.0).abs() < 1e-9);
        // A claim outside of the run is not counted.
        assert!(intervals(&[(11 * second, Duration::ZERO)], 0, Duration::from_secs(1), &[]).unwrap().is_empty());
    }
}
