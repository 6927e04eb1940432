//! Concurrent producer sessions, each of which enqueues until the time or the count is over.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::future::try_join_all;
use tokio::time::MissedTickBehavior;

use super::super::histogram::LatencyHistogram;
use super::super::plan::Plan;
use super::super::server::BenchDatabase;
use super::super::workload::{ProducerSession, Workload};
use crate::failure::Failure;

/// Sessions that are ready to enqueue.
pub(super) struct Producers(Vec<ProducerSession>);

/// What they did.
pub(super) struct Sent {
    pub(super) count: u64,
    pub(super) length: Duration,
    /// The latency of each call.
    pub(super) times: LatencyHistogram,
}

impl Producers {
    /// Opens the planned sessions. Each enqueues once: the first call of a session loads the functions.
    pub(super) async fn open(database: &BenchDatabase, plan: &Plan, workload: &Workload) -> Result<Self, Failure> {
        let open = async || {
            let session = workload.session(database.target().connect().await?).await?;
            workload.enqueue(&session).await?;
            Ok::<_, Failure>(session)
        };
        let mut producers = Vec::new();
        for _ in 0..plan.clients {
            producers.push(open().await?);
        }
        Ok(Self(producers))
    }

    /// Runs all sessions to the end, and closes them.
    pub(super) async fn send(self, plan: &Plan, workload: &Workload) -> Result<Sent, Failure> {
        let began = Instant::now();
        let end = plan.count.is_none().then(|| began + plan.length);
        let left = AtomicU64::new(plan.count.unwrap_or(u64::MAX));
        let clients = u32::try_from(self.0.len()).unwrap_or(u32::MAX);
        let pace = plan.rate.map(|rate| Duration::from_secs(1) * clients / rate.max(1));
        let work = self.0.iter().map(|session| one(session, workload, end, &left, pace));
        let all = try_join_all(work).await?;
        let length = began.elapsed();
        let mut times = LatencyHistogram::new()?;
        for one in &all {
            times.merge(one)?;
        }
        Ok(Sent { count: times.count(), length, times })
    }
}

async fn one(
    session: &ProducerSession,
    workload: &Workload,
    end: Option<Instant>,
    left: &AtomicU64,
    pace: Option<Duration>,
) -> Result<LatencyHistogram, Failure> {
    let mut times = LatencyHistogram::new()?;
    let mut turns = pace.map(tokio::time::interval);
    if let Some(turns) = &mut turns {
        turns.set_missed_tick_behavior(MissedTickBehavior::Delay);
    }
    loop {
        if let Some(turns) = &mut turns {
            turns.tick().await;
        }
        let is_over = end.is_some_and(|end| Instant::now() >= end);
        let take = |left: u64| left.checked_sub(1);
        if is_over || left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Ok(times);
        }
        let called = Instant::now();
        workload.enqueue(session).await?;
        times.record(called.elapsed());
    }
}
