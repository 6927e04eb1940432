//! The running dispatches: one task each, keyed by the id of the task.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::breaker::Attempt;
use crate::fail_point::{self, Step};
use crate::lane::{DispatchResult, Lane};
use crate::lease::{LeaseExpiry, LeaseWatch};
use crate::trace::{self, OpenSpan, SpanStatus, TraceId, Tracer};

/// How a dispatch ended.
pub(super) enum DispatchEnd<O> {
    /// It returned.
    Finished(DispatchResult<O>),
    /// It was not started: its lease was about to expire, its turn did not come, or it was cancelled while it waited.
    NotStarted,
    /// It panicked.
    Panicked,
    /// It was cancelled.
    Cancelled,
}

/// A running dispatch.
pub(super) struct RunningDispatch<L: Lane> {
    pub(super) lease: L::Lease,
    pub(super) route: Arc<str>,
    /// What it is for the circuit breaker of its route.
    pub(super) attempt: Attempt,
    /// When it took its slot.
    pub(super) started: Instant,
    pub(super) until: Arc<LeaseExpiry>,
    /// Whether the lease is known to be lost: its outcome is not recorded then.
    pub(super) lost: bool,
    /// Its trace, if traces are exported.
    pub(super) trace_id: Option<TraceId>,
    task: AbortHandle,
}

impl<L: Lane> RunningDispatch<L> {
    /// Cancels the dispatch at its next await. It ends as [`DispatchEnd::Cancelled`], unless it has returned already.
    pub(super) fn cancel(&self) {
        self.task.abort();
    }
}

/// All running dispatches.
pub(super) struct Dispatches<L: Lane> {
    lane: Arc<L>,
    margin: Duration,
    /// Exports spans, if configured.
    pub(super) tracer: Option<Arc<dyn Tracer>>,
    tasks: JoinSet<DispatchEnd<L::Outcome>>,
    running: HashMap<Id, RunningDispatch<L>>,
}

pub(super) type EndedDispatch<L> = (Id, DispatchEnd<<L as Lane>::Outcome>);

impl<L: Lane> Dispatches<L> {
    pub(super) fn new(lane: Arc<L>, margin: Duration) -> Self {
        Self { lane, margin, tracer: None, tasks: JoinSet::new(), running: HashMap::new() }
    }

    /// Starts a dispatch under a lease that expires at `until`.
    pub(super) fn start(
        &mut self,
        mut job: L::Job,
        route: Arc<str>,
        attempt: Attempt,
        started: Instant,
        until: Instant,
    ) -> Id {
        let lease = self.lane.lease(&job);
        let (until, watch) = LeaseWatch::new(until, self.margin);
        let lane = Arc::clone(&self.lane);
        let span = self
            .tracer
            .as_ref()
            .and_then(|tracer| OpenSpan::dispatch(tracer, &lease.to_string(), &route, lane.origin(&job)));
        let trace_id = span.as_ref().map(OpenSpan::trace_id);
        let status_of = Arc::clone(&self.lane);
        // Boxed once: spawning moves the future several times, and a lane's dispatch is some kilobytes.
        let work = Box::pin(async move {
            // The process may have stalled since the claim.
            if !lane.wait_for_turn(&mut job).await || watch.remaining().is_zero() {
                return DispatchEnd::NotStarted;
            }
            watch.mark_dispatched();
            fail_point::reach(Step::BeforeDispatch);
            let finished = lane.dispatch(job, watch).await;
            fail_point::reach(Step::AfterDispatch);
            DispatchEnd::Finished(finished)
        });
        let task = self.tasks.spawn(trace::in_span(span, work, move |end| match end {
            DispatchEnd::Finished(finished) => status_of.span_status(&finished.outcome),
            DispatchEnd::NotStarted | DispatchEnd::Panicked | DispatchEnd::Cancelled => SpanStatus::ok("RELEASED"),
        }));
        let id = task.id();
        self.running
            .insert(id, RunningDispatch { lease, route, attempt, started, until, lost: false, trace_id, task });
        id
    }

    /// Waits for a dispatch to end; cancel-safe. Never returns while none is running.
    pub(super) async fn ended(&mut self) -> EndedDispatch<L> {
        match self.tasks.join_next_with_id().await {
            Some(joined) => dispatch_end(joined),
            None => std::future::pending().await,
        }
    }

    /// A dispatch that has ended already.
    pub(super) fn ready(&mut self) -> Option<EndedDispatch<L>> {
        self.tasks.try_join_next_with_id().map(dispatch_end)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut RunningDispatch<L>> {
        self.running.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<RunningDispatch<L>> {
        self.running.remove(&id)
    }

    /// Cancels every dispatch, in a fixed order, so that a run can be repeated.
    pub(super) fn cancel_all(&self) {
        let mut running: Vec<_> = self.running.iter().collect();
        running.sort_unstable_by_key(|(id, _)| **id);
        running.into_iter().for_each(|(_, dispatch)| dispatch.cancel());
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }
}

fn dispatch_end<O>(joined: Result<(Id, DispatchEnd<O>), JoinError>) -> (Id, DispatchEnd<O>) {
    match joined {
        Ok(ended) => ended,
        Err(error) if error.is_panic() => (error.id(), DispatchEnd::Panicked),
        Err(error) => (error.id(), DispatchEnd::Cancelled),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim_capacity::ClaimCapacity;
    use crate::lane::{Claim, Completion, CompletionResult, LaneError, Repaired};
    use crate::lease::Term;

    /// A lane of which no method may be called.
    struct UnusedLane;

    impl Lane for UnusedLane {
        type Job = u8;
        type Lease = u8;
        type Outcome = ();

        fn name(&self) -> &'static str {
            unreachable!()
        }
        fn term(&self) -> Term {
            unreachable!()
        }
        fn lease(&self, job: &u8) -> u8 {
            *job
        }
        fn span_status(&self, (): &()) -> SpanStatus {
            unreachable!()
        }
        fn route<'a>(&self, _: &'a u8) -> &'a str {
            unreachable!()
        }
        async fn claim(&self, _: &ClaimCapacity) -> Result<Claim<u8>, LaneError> {
            unreachable!()
        }
        async fn dispatch(&self, _: u8, _: LeaseWatch) -> DispatchResult<()> {
            unreachable!()
        }
        fn abandoned(&self, _: &u8) -> Option<()> {
            unreachable!()
        }
        async fn complete(&self, _: &[Arc<Completion<u8, ()>>]) -> Result<Vec<CompletionResult>, LaneError> {
            unreachable!()
        }
        async fn renew(&self, _: &[u8]) -> Result<Vec<bool>, LaneError> {
            unreachable!()
        }
        async fn release(&self, _: &[u8]) -> Result<usize, LaneError> {
            unreachable!()
        }
        async fn repair(&self) -> Result<Repaired, LaneError> {
            unreachable!()
        }
        async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
            unreachable!()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dispatch_whose_lease_is_about_to_expire_never_starts() {
        let margin = Duration::from_secs(3);
        let mut dispatches = Dispatches::new(Arc::new(UnusedLane), margin);
        let (now, attempt) = (Instant::now(), Attempt { probe: false, is_first: true });
        let id = dispatches.start(1, Arc::from("wire"), attempt, now, now + margin + Duration::from_secs(1));
        // The process stalls before the task first runs.
        tokio::time::advance(Duration::from_secs(1)).await;
        let (ended, end) = dispatches.ended().await;
        assert!(ended == id && matches!(end, DispatchEnd::NotStarted));
    }
}
