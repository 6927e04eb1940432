//! Concurrent producer sessions, each of which enqueues until the time or the count is over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tokio::time::MissedTickBehavior;

use super::super::histogram::LatencyHistogram;
use super::super::plan::Plan;
use super::super::server::BenchDatabase;
use super::super::workload::{ProducerSession, Workload};
use super::producer_threads::ProducerThreads;
use crate::failure::Failure;

/// Sessions that are ready to enqueue, and their threads.
pub(super) struct Producers {
    sessions: Vec<ProducerSession>,
    threads: ProducerThreads,
}

/// What they did.
pub(super) struct Sent {
    pub(super) count: u64,
    pub(super) length: Duration,
    /// The latency of each call.
    pub(super) times: LatencyHistogram,
}

impl Producers {
    /// Opens the planned sessions. Each enqueues once: the first call of a session loads the functions.
    pub(super) async fn open(
        database: &BenchDatabase,
        plan: &Plan,
        workload: &Arc<Workload>,
    ) -> Result<Self, Failure> {
        let threads = ProducerThreads::start(plan.clients)?;
        let open = |_| {
            let (target, workload) = (Arc::clone(database.target()), Arc::clone(workload));
            async move {
                let session = workload.session(target.connect().await?).await?;
                workload.enqueue(&session).await?;
                Ok(session)
            }
        };
        let sessions = threads.run((0..plan.clients).map(open)).await?;
        Ok(Self { sessions, threads })
    }

    /// Runs all sessions to the end, and closes them.
    pub(super) async fn send(self, plan: &Plan, workload: &Arc<Workload>) -> Result<Sent, Failure> {
        let began = Instant::now();
        let end = plan.count.is_none().then(|| began + plan.length);
        let left = Arc::new(AtomicU64::new(plan.count.unwrap_or(u64::MAX)));
        let clients = u32::try_from(self.sessions.len()).unwrap_or(u32::MAX);
        let pace = plan.rate.map(|rate| Duration::from_secs(1) * clients / rate.max(1));
        let work = self.sessions.into_iter().map(|session| {
            let (workload, left) = (Arc::clone(workload), Arc::clone(&left));
            async move { one(&session, &workload, end, &left, pace).await }
        });
        let all = self.threads.run(work).await?;
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
