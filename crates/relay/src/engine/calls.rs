//! Database calls in flight: one task each, with a timeout, so that a call that hangs blocks no other.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{Id, JoinSet};
use tokio::time::{Instant, timeout, timeout_at};

use crate::claim_capacity::ClaimCapacity;
use crate::completion_batcher::PendingCompletion;
use crate::fail_point::{self, Step};
use crate::lane::{Claim, CompletionResult, Lane, LaneError, Repaired};

type LaneResult<T> = Result<T, LaneError>;
pub(super) type ClaimResult<L> = LaneResult<Claim<<L as Lane>::Job>>;
pub(super) type LanePending<L> = PendingCompletion<<L as Lane>::Lease, <L as Lane>::Outcome>;

/// The result of a call, with the context needed to handle it.
pub(super) enum CallResult<L: Lane> {
    /// A claim, and when it was sent. After a timeout it continues in `late`.
    Claimed {
        capacity: ClaimCapacity,
        sent: Instant,
        claim: ClaimResult<L>,
        late: Option<JoinSet<ClaimResult<L>>>,
    },
    /// A claim that returned after its timeout, and its rows.
    ClaimedLate { sent: Instant, claim: Claim<L::Job> },
    /// A completion.
    Completed { batch: Vec<LanePending<L>>, results: LaneResult<Vec<CompletionResult>> },
    /// A renewal of the leases of these dispatches, and when it was sent.
    Renewed { dispatches: Vec<Id>, sent: Instant, held: LaneResult<Vec<bool>> },
    /// A release of leases that were not started.
    Released { leases: Vec<(L::Lease, Instant)>, count: LaneResult<usize> },
    /// A repair.
    Repaired(LaneResult<Repaired>),
    /// The time until the next scheduled row is due.
    NextDue(LaneResult<Option<Duration>>),
}

/// The calls in flight.
pub(super) struct Calls<L: Lane> {
    lane: Arc<L>,
    limit: Duration,
    tasks: JoinSet<CallResult<L>>,
}

impl<L: Lane> Calls<L> {
    pub(super) fn new(lane: Arc<L>, limit: Duration) -> Self {
        Self { lane, limit, tasks: JoinSet::new() }
    }

    /// Waits for a call to return; cancel-safe. Never returns while none is in flight.
    pub(super) async fn returned(&mut self) -> CallResult<L> {
        loop {
            match self.tasks.join_next().await {
                Some(Ok(result)) => return result,
                // The lane runs in an inner task, so these tasks neither panic nor are cancelled.
                Some(Err(_)) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// A call that has returned already.
    pub(super) fn ready(&mut self) -> Option<CallResult<L>> {
        self.tasks.try_join_next()?.ok()
    }

    pub(super) fn claim(&mut self, capacity: ClaimCapacity) {
        let (lane, limit, sent, requested) =
            (Arc::clone(&self.lane), self.limit, Instant::now(), capacity.clone());
        self.tasks.spawn(async move {
            let mut task = JoinSet::new();
            task.spawn(async move {
                fail_point::reach(Step::BeforeClaim);
                let claim = lane.claim(&requested).await;
                fail_point::reach(Step::AfterClaim);
                claim
            });
            match timeout(limit, task.join_next()).await {
                Ok(joined) => CallResult::Claimed { capacity, sent, claim: flatten(joined), late: None },
                Err(_) => CallResult::Claimed { capacity, sent, claim: Err(no_answer(limit)), late: Some(task) },
            }
        });
    }

    /// Keeps waiting for a claim that timed out, until its leases expire: its rows would stay leased for that long
    /// without a dispatch, and lose an attempt.
    pub(super) fn await_late_claim(&mut self, mut late: JoinSet<ClaimResult<L>>, sent: Instant, until: Instant) {
        self.tasks.spawn(async move {
            let claim = timeout_at(until, late.join_next()).await.ok().and_then(|joined| flatten(joined).ok());
            CallResult::ClaimedLate { sent, claim: claim.unwrap_or_else(|| Claim::new(Vec::new())) }
        });
    }

    pub(super) fn complete(&mut self, batch: Vec<LanePending<L>>) {
        let (lane, limit) = (Arc::clone(&self.lane), self.limit);
        let completions: Vec<_> = batch.iter().map(|pending| Arc::clone(&pending.completion)).collect();
        self.tasks.spawn(async move {
            let results = bounded(limit, async move {
                fail_point::reach(Step::BeforeComplete);
                let results = lane.complete(&completions).await;
                fail_point::reach(Step::AfterComplete);
                results
            })
            .await;
            CallResult::Completed { batch, results }
        });
    }

    /// Renewals have a shorter timeout than other calls: several attempts must fit into a lease.
    pub(super) fn renew(&mut self, dispatches: Vec<Id>, leases: Vec<L::Lease>) {
        let limit = self.limit.min(self.lane.term().length() / 6);
        let (lane, sent) = (Arc::clone(&self.lane), Instant::now());
        self.tasks.spawn(async move {
            let held = bounded(limit, async move {
                fail_point::reach(Step::BeforeRenew);
                let held = lane.renew(&leases).await;
                fail_point::reach(Step::AfterRenew);
                held
            })
            .await;
            CallResult::Renewed { dispatches, sent, held }
        });
    }

    pub(super) fn release(&mut self, leases: Vec<(L::Lease, Instant)>) {
        let (lane, limit) = (Arc::clone(&self.lane), self.limit);
        let to_release: Vec<_> = leases.iter().map(|(lease, _)| lease.clone()).collect();
        self.tasks.spawn(async move {
            let count = bounded(limit, async move {
                fail_point::reach(Step::BeforeRelease);
                let count = lane.release(&to_release).await;
                fail_point::reach(Step::AfterRelease);
                count
            })
            .await;
            CallResult::Released { leases, count }
        });
    }

    pub(super) fn repair(&mut self) {
        let (lane, limit) = (Arc::clone(&self.lane), self.limit);
        self.tasks.spawn(async move {
            let repaired = bounded(limit, async move {
                fail_point::reach(Step::BeforeRepair);
                let repaired = lane.repair().await;
                fail_point::reach(Step::AfterRepair);
                repaired
            });
            CallResult::Repaired(repaired.await)
        });
    }

    pub(super) fn next_due(&mut self) {
        let (lane, limit) = (Arc::clone(&self.lane), self.limit);
        self.tasks
            .spawn(async move { CallResult::NextDue(bounded(limit, async move { lane.next_due().await }).await) });
    }
}

/// Runs a call of the lane with a timeout. A panic counts as a refusal.
async fn bounded<T: Send + 'static>(
    limit: Duration,
    call: impl Future<Output = LaneResult<T>> + Send + 'static,
) -> LaneResult<T> {
    let mut task = JoinSet::new();
    task.spawn(call);
    timeout(limit, task.join_next()).await.map_or_else(|_| Err(no_answer(limit)), flatten)
}

fn flatten<T>(joined: Option<Result<LaneResult<T>, tokio::task::JoinError>>) -> LaneResult<T> {
    match joined {
        Some(Ok(result)) => result,
        Some(Err(_)) | None => Err(LaneError::Refused("the call panicked".to_owned())),
    }
}

fn no_answer(limit: Duration) -> LaneError {
    LaneError::Unavailable(format!("no answer within {limit:?}"))
}
