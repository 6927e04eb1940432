//! Dispatches under way: each a task of its own, found by its task's id.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};
use tokio::time::Instant;

use crate::fail_point::{self, Step};
use crate::lane::{Finished, Lane};
use crate::lease::LeaseWatch;
use crate::trace::{self, Begun, End, TraceId, Tracer};

/// How a dispatch came back.
pub(super) enum Landing<O> {
    /// It ended by itself.
    Finished(Finished<O>),
    /// Its lease was too near its end when its turn came, so it never began.
    TooLate,
    /// It panicked.
    Panicked,
    /// It was cut off.
    CutOff,
}

/// A dispatch that runs.
pub(super) struct Flight<L: Lane> {
    pub(super) lease: L::Lease,
    pub(super) route: Arc<str>,
    /// Whether its end decides about its route.
    pub(super) probe: bool,
    /// When its lease is over, at the latest.
    pub(super) until: watch::Sender<Instant>,
    /// Whether the lease is known to be lost: there is nothing to record then.
    pub(super) lost: bool,
    /// The trace that it is in, where spans are drawn.
    pub(super) trace_id: Option<TraceId>,
    task: AbortHandle,
}

impl<L: Lane> Flight<L> {
    /// Stops the dispatch at its next await. It lands as cut off, unless it was done already.
    pub(super) fn cut_off(&self) {
        self.task.abort();
    }
}

/// All that run.
pub(super) struct Flights<L: Lane> {
    lane: Arc<L>,
    margin: Duration,
    /// Who draws spans, if anybody does.
    pub(super) tracer: Option<Arc<dyn Tracer>>,
    tasks: JoinSet<Landing<L::Outcome>>,
    flights: HashMap<Id, Flight<L>>,
}

pub(super) type Landed<L> = (Id, Landing<<L as Lane>::Outcome>);

impl<L: Lane> Flights<L> {
    pub(super) fn new(lane: Arc<L>, margin: Duration) -> Self {
        Self { lane, margin, tracer: None, tasks: JoinSet::new(), flights: HashMap::new() }
    }

    /// Starts a dispatch under a lease that lasts until then.
    pub(super) fn start(&mut self, job: L::Job, route: Arc<str>, probe: bool, until: Instant) -> Id {
        let lease = self.lane.lease(&job);
        let (sender, watch) = LeaseWatch::new(until, self.margin);
        let lane = Arc::clone(&self.lane);
        let begun = self
            .tracer
            .as_ref()
            .and_then(|tracer| Begun::dispatch(tracer, &lease.to_string(), &route, lane.origin(&job)));
        let trace_id = begun.as_ref().map(Begun::trace_id);
        let ending = Arc::clone(&self.lane);
        // On the heap once: a task copies what it is made of several times, and a lane's dispatch is some kilobytes.
        let work = Box::pin(async move {
            // The process may have been held up between the claim and this moment.
            if watch.remaining().is_zero() {
                return Landing::TooLate;
            }
            fail_point::reach(Step::BeforeDispatch);
            let finished = lane.dispatch(job, watch).await;
            fail_point::reach(Step::AfterDispatch);
            Landing::Finished(finished)
        });
        let task = self.tasks.spawn(trace::within(begun, work, move |landing| match landing {
            Landing::Finished(finished) => ending.end(&finished.outcome),
            Landing::TooLate | Landing::Panicked | Landing::CutOff => End::well("RELEASED"),
        }));
        let id = task.id();
        self.flights.insert(id, Flight { lease, route, probe, until: sender, lost: false, trace_id, task });
        id
    }

    /// Waits for one to land; cancel-safe. Never returns while none is in the air.
    pub(super) async fn landed(&mut self) -> Landed<L> {
        match self.tasks.join_next_with_id().await {
            Some(joined) => land(joined),
            None => std::future::pending().await,
        }
    }

    /// One that has landed already.
    pub(super) fn ready(&mut self) -> Option<Landed<L>> {
        self.tasks.try_join_next_with_id().map(land)
    }

    pub(super) fn get_mut(&mut self, id: Id) -> Option<&mut Flight<L>> {
        self.flights.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: Id) -> Option<Flight<L>> {
        self.flights.remove(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Flight<L>> {
        self.flights.values()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flights.is_empty()
    }
}

fn land<O>(joined: Result<(Id, Landing<O>), JoinError>) -> (Id, Landing<O>) {
    match joined {
        Ok(landed) => landed,
        Err(error) if error.is_panic() => (error.id(), Landing::Panicked),
        Err(error) => (error.id(), Landing::CutOff),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::claim_capacity::ClaimCapacity;
    use crate::lane::{Claim, Done, Ended, Repaired, Trouble};
    use crate::lease::Term;

    /// A lane that must not be asked for anything.
    struct Untouched;

    impl Lane for Untouched {
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
        fn end(&self, (): &()) -> End {
            unreachable!()
        }
        fn route<'a>(&self, _: &'a u8) -> &'a str {
            unreachable!()
        }
        async fn claim(&self, _: &ClaimCapacity) -> Result<Claim<u8>, Trouble> {
            unreachable!()
        }
        async fn dispatch(&self, _: u8, _: LeaseWatch) -> Finished<()> {
            unreachable!()
        }
        fn abandoned(&self, _: &u8) -> Option<()> {
            unreachable!()
        }
        async fn complete(&self, _: &[Arc<Done<u8, ()>>]) -> Result<Vec<Ended>, Trouble> {
            unreachable!()
        }
        async fn renew(&self, _: &[u8]) -> Result<Vec<bool>, Trouble> {
            unreachable!()
        }
        async fn release(&self, _: &[u8]) -> Result<usize, Trouble> {
            unreachable!()
        }
        async fn repair(&self) -> Result<Repaired, Trouble> {
            unreachable!()
        }
        async fn next_due(&self) -> Result<Option<Duration>, Trouble> {
            unreachable!()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_dispatch_whose_turn_comes_too_late_never_begins() {
        let margin = Duration::from_secs(3);
        let mut flights = Flights::new(Arc::new(Untouched), margin);
        let id = flights.start(1, Arc::from("wire"), false, Instant::now() + margin + Duration::from_secs(1));
        // The process is held up before the task gets its turn.
        tokio::time::advance(Duration::from_secs(1)).await;
        let (landed, landing) = flights.landed().await;
        assert!(landed == id && matches!(landing, Landing::TooLate));
    }
}
