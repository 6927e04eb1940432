//! The event lane: claims events from PostgreSQL, publishes them to sinks, and records the outcomes.
//!
//! Translates between the engine, the SQL functions and the sinks. [`routing`] decides the sink and the destination
//! of an event; [`order`] names the order guarantee within an aggregate. The database decides when a failed event is
//! retried.

pub mod order;
pub mod routing;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use symphony_db::connect::{Session, Target};
use symphony_db::error::CompleteError;
use symphony_db::event::worker::{self, ClaimRoute, Claimed, Completed, Outcome};
use symphony_db::event::{EventId, ProcessorId};
use symphony_db::retention::remove_processed_events;
use symphony_db::{BatchSize, WorkerId};

use crate::claim_capacity::ClaimCapacity;
use crate::claim_session::{ClaimHolder, ClaimSessionKeeper};
use crate::epoch::{self, EpochFence};
use crate::key_order::{KeyOrder, Turn};
use crate::lane::{Claim, Completion, CompletionResult, DispatchResult, Lane, LaneError, Repaired, RouteSignal};
use crate::lease::{LeaseWatch, Term};
use crate::retention;
use crate::session_pool::SessionPool;
use crate::sink::{Message, Published, Sink};
use crate::trace::{Origin, SpanStatus};

use order::Order;
use routing::{Route, Routes};

/// How long a claim of this lane lasts: fixed by the contract, without renewal.
const CLAIM_TERM: Duration = Duration::from_secs(300);

/// How long the order that a claim has found is trusted. A claim finds the first event of an aggregate, and an earlier
/// one may be committed later.
const FRESH_CLAIM: Duration = Duration::from_millis(100);

/// The maximum number of events per release.
const MAX_BATCH: usize = 1000;

/// The configuration of an event lane.
pub struct EventConfig {
    /// The CloudEvents `source` of every event: a URI reference.
    pub source: String,
    /// Which events go to which sink.
    pub routes: Routes,
    /// The sinks, by name.
    pub sinks: BTreeMap<String, Arc<dyn Sink>>,
    /// The order guarantee within an aggregate.
    pub order: Order,
}

/// The event lane of one process.
pub struct EventLane {
    worker: WorkerId,
    config: EventConfig,
    key_order: KeyOrder<EventId>,
    fence: Arc<EpochFence>,
    claim_session: ClaimSessionKeeper,
    claims: SessionPool,
    completions: SessionPool,
    releases: SessionPool,
    order_checks: SessionPool,
}

impl fmt::Debug for EventLane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLane")
            .field("worker", &self.worker)
            .field("sinks", &self.config.sinks.keys().collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}

/// A claimed event, its route, and its turn among the events of its aggregate that this process holds.
#[derive(Debug)]
pub struct Job {
    claimed: Claimed,
    processor: ProcessorId,
    /// Whose claim it is.
    holder: ClaimHolder,
    /// The sink and the destination; `None` if no route matches.
    route: Option<(String, String)>,
    turn: Turn<EventId>,
    /// Whether this process held no event of the aggregate when it was claimed.
    is_head: bool,
    /// When its claim was sent.
    claim_sent: Instant,
    /// The epoch of its claim.
    epoch: Option<i64>,
}

/// The outcome of an event. With strict order, a delivered event keeps its turn until the outcome is recorded or
/// given up: the next one must not be sent before.
#[derive(Debug)]
pub struct EventOutcome {
    outcome: Outcome,
    turn: Option<Turn<EventId>>,
}

/// A claim on one event.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    id: EventId,
    processor: ProcessorId,
}

impl fmt::Display for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl EventLane {
    /// A lane with this configuration. It does not connect yet.
    #[must_use]
    pub fn new(target: Arc<Target>, worker: WorkerId, config: EventConfig) -> Self {
        let pool = || SessionPool::new(Arc::clone(&target));
        let lane = Self {
            claim_session: ClaimSessionKeeper::new(Arc::clone(&target), worker.clone()),
            worker,
            config,
            key_order: KeyOrder::default(),
            fence: Arc::default(),
            claims: pool(),
            completions: pool(),
            releases: pool(),
            order_checks: pool(),
        };
        lane.with_fence(Arc::default())
    }

    /// Shares the fence against old primaries with the other lanes of the process.
    #[must_use]
    pub fn with_fence(mut self, fence: Arc<EpochFence>) -> Self {
        for pool in [&mut self.claims, &mut self.completions, &mut self.releases, &mut self.order_checks] {
            pool.set_fence(&fence);
        }
        self.fence = fence;
        self
    }

    /// How many events to claim: of all sinks together, at most what their limits allow. While the circuit breaker of the only
    /// sink is open, nothing is claimed.
    fn claim_size(&self, capacity: &ClaimCapacity) -> usize {
        let sinks: BTreeSet<&str> = self.config.routes.sinks().collect();
        sinks.into_iter().map(|sink| capacity.most_of(sink)).sum::<usize>().min(capacity.total())
    }

    /// The limit of each sink, by route, if one is so low that a claim by number would return events for which no slot is
    /// free. Such an event would be released, which counts as a failure.
    fn limits_by_sink<'a>(&'a self, capacity: &ClaimCapacity) -> Option<Vec<ClaimRoute<'a>>> {
        if self.route_count() == 1 || capacity.for_any_route(self.config.routes.sinks()).is_some() {
            return None;
        }
        let limit = |sink: &str| u32::try_from(capacity.most_of(sink)).unwrap_or(u32::MAX).min(10_000);
        let route = |route: &'a Route| ClaimRoute {
            aggregate_type: &route.aggregate_type,
            event_type: &route.event_type,
            sink: &route.sink,
            limit: limit(&route.sink),
        };
        Some(self.config.routes.iter().map(route).collect())
    }

    /// Whether to claim the newest event that has not failed, to probe the only sink. Of several a claim takes any.
    fn claims_newest(&self, capacity: &ClaimCapacity) -> bool {
        let mut sinks = self.config.routes.sinks().peekable();
        self.route_count() == 1 && sinks.peek().is_some() && sinks.all(|sink| capacity.takes_first_attempt(sink))
    }

    async fn publish(&self, job: &mut Job, lease: &LeaseWatch) -> (Outcome, RouteSignal) {
        let Some((sink, destination)) = job.route.take() else {
            let event = &job.claimed.event;
            return failed(
                format!("no route matches {} of {}", event.event_type, event.aggregate_type),
                RouteSignal::Neutral,
            );
        };
        let Some(sink) = self.config.sinks.get(&sink) else {
            return failed(format!("the sink {sink} is not configured"), RouteSignal::Neutral);
        };
        let next = job.turn.wait_for_turn().await;
        if self.strict()
            && let Err(why) = self.check_first(job, next).await
        {
            return failed(why, RouteSignal::Neutral);
        }
        if lease.remaining().is_zero() {
            return failed("the claim expired before the event was sent".to_owned(), RouteSignal::Neutral);
        }
        if job.holder.may_be_replaced() {
            let why = "the session of the claim has ended: another relayer may send the event".to_owned();
            return failed(why, RouteSignal::Neutral);
        }
        if let Some(why) = self.fence.refusal(job.epoch) {
            return failed(why.to_owned(), RouteSignal::Neutral);
        }
        let message = self.message(job, destination);
        let published = sink.publish(&message).await;
        match published {
            Published::Confirmed { .. } => (Outcome::Delivered, RouteSignal::Healthy),
            Published::Refused(why) => failed(why, RouteSignal::Healthy),
            Published::Failed(why) => failed(why, RouteSignal::Failing),
        }
    }

    fn strict(&self) -> bool {
        self.config.order == Order::Aggregate
    }

    /// Checks that every earlier event of the aggregate is processed, by any worker. If not, the event is released,
    /// and no claim returns it before that one is processed.
    ///
    /// The completion of the event before has read which event is first now. An event without one in front of it was
    /// first when its claim was sent. So only events that waited longer than [`FRESH_CLAIM`], or behind a failure, need
    /// a query.
    async fn check_first(&self, job: &Job, next: Option<EventId>) -> Result<(), String> {
        let id = job.claimed.id;
        match next {
            Some(next) if next < id => return Err(format!("waits behind event {next}")),
            Some(_) => return Ok(()),
            None if job.is_head && job.claim_sent.elapsed() < FRESH_CLAIM => return Ok(()),
            None => {}
        }
        match self.order_checks.call(async |session| worker::earlier_unprocessed(session, id).await).await {
            Ok(None) => Ok(()),
            Ok(Some(behind)) => Err(format!("waits behind event {behind}")),
            Err(error) => Err(error.to_string()),
        }
    }

    /// How many rows of a claim may wait for another row of it. They occupy a slot without using it, so half of the
    /// free capacity is kept for aggregates of which this process holds no event.
    fn max_followers(&self, size: usize) -> usize {
        size.saturating_sub(self.key_order.waiting()) / 2
    }

    fn message(&self, job: &Job, destination: String) -> Message {
        let event = &job.claimed.event;
        Message {
            id: job.claimed.id.to_string(),
            source: self.config.source.clone(),
            event_type: event.event_type.clone(),
            aggregate_type: event.aggregate_type.clone(),
            aggregate_id: event.aggregate_id.clone(),
            destination,
            data: event.payload.as_json().to_owned(),
        }
    }
}

fn failed(error: String, signal: RouteSignal) -> (Outcome, RouteSignal) {
    (Outcome::Failed { error: Some(error) }, signal)
}

impl Lane for EventLane {
    type Job = Job;
    type Lease = Lease;
    type Outcome = EventOutcome;

    fn name(&self) -> &'static str {
        "event"
    }

    fn term(&self) -> Term {
        Term::Fixed(CLAIM_TERM)
    }

    fn lease(&self, job: &Job) -> Lease {
        Lease { id: job.claimed.id, processor: job.processor.clone() }
    }

    fn route<'a>(&self, job: &'a Job) -> &'a str {
        job.route.as_ref().map_or("none", |(sink, _)| sink)
    }

    fn route_count(&self) -> usize {
        self.config.routes.sinks().collect::<BTreeSet<_>>().len()
    }

    /// The contract has no column for a trace context.
    fn origin(&self, job: &Job) -> Origin {
        Origin { attempt: u32::try_from(job.claimed.retry_count).ok().map(|before| before + 1), producer: None }
    }

    fn span_status(&self, outcome: &EventOutcome) -> SpanStatus {
        match &outcome.outcome {
            Outcome::Delivered => SpanStatus::ok("DELIVERED"),
            Outcome::Failed { .. } => SpanStatus::failed("FAILED", None),
        }
    }

    async fn claim(&self, capacity: &ClaimCapacity) -> Result<Claim<Job>, LaneError> {
        let newest = self.claims_newest(capacity);
        let limits = if newest { None } else { self.limits_by_sink(capacity) };
        let unlimited = capacity.for_any_route(self.config.routes.sinks());
        let size = unlimited.unwrap_or_else(|| self.claim_size(capacity)).min(self.claim_size(capacity));
        if size == 0 {
            return Ok(Claim::new(Vec::new()));
        }
        let Some(at_most) = u16::try_from(size).ok().and_then(|size| BatchSize::try_from(size).ok()) else {
            return Err(LaneError::Refused(format!("a claim of {size} events is out of range")));
        };
        let followers = u16::try_from(self.max_followers(size)).unwrap_or(u16::MAX);
        let holder = self.claim_session.holder().await;
        let claim = async |session: &Session| {
            if newest {
                worker::claim_newest(session, holder.name()).await
            } else if let Some(routes) = &limits {
                worker::claim_by_sink(session, holder.name(), at_most, self.strict(), routes).await
            } else if self.strict() {
                worker::claim_in_order(session, holder.name(), at_most, followers).await
            } else {
                worker::claim(session, holder.name(), at_most).await
            }
        };
        let claim_sent = Instant::now();
        let claim = self.claims.call(claim).await?;
        epoch::log_opened(self.name(), claim.opened_epoch.as_ref());
        let epoch = claim.epoch;
        // Without the rows: they are those of an old primary.
        epoch.map_or(Ok(()), |epoch| self.fence.see(epoch))?;
        let job = |claimed: Claimed| {
            let turn = self.key_order.join(&claimed.event.aggregate_type, &claimed.event.aggregate_id);
            Job {
                route: self.config.routes.resolve(&claimed.event),
                is_head: !turn.must_wait(),
                turn,
                processor: claim.processor.clone(),
                holder: holder.clone(),
                claim_sent,
                epoch,
                claimed,
            }
        };
        // Events have no ledger: an expired claim is simply replaced, and one of a relayer that is gone released.
        let requeued = claim.taken_over + self.claim_session.take_released();
        let taken_over = Repaired { requeued, ..Repaired::default() };
        let asked = (self.route_count() > 1 && limits.is_none()).then_some(size);
        Ok(Claim { taken_over, asked, ..Claim::new(claim.events.into_iter().map(job).collect()) })
    }

    async fn dispatch(&self, mut job: Job, lease: LeaseWatch) -> DispatchResult<EventOutcome> {
        let began = Instant::now();
        let (outcome, signal) = self.publish(&mut job, &lease).await;
        let turn = (self.strict() && outcome == Outcome::Delivered).then_some(job.turn);
        DispatchResult { outcome: EventOutcome { outcome, turn }, latency: began.elapsed(), signal }
    }

    fn abandoned(&self, _lease: &Lease) -> Option<EventOutcome> {
        let outcome = Outcome::Failed { error: Some("publishing was cancelled".to_owned()) };
        Some(EventOutcome { outcome, turn: None })
    }

    async fn complete(
        &self,
        completions: &[Arc<Completion<Lease, EventOutcome>>],
    ) -> Result<Vec<CompletionResult>, LaneError> {
        let batch: Vec<_> = completions
            .iter()
            .map(|completion| worker::Completion {
                id: completion.lease.id,
                processor: completion.lease.processor.clone(),
                outcome: completion.outcome.outcome.clone(),
            })
            .collect();
        let strict = self.strict();
        let ends =
            self.completions.call(async |session| worker::complete_batch(session, &batch, strict).await).await?;
        Ok(ends.into_iter().zip(completions).map(|(end, completion)| result(end, &completion.outcome)).collect())
    }

    async fn renew(&self, leases: &[Lease]) -> Result<Vec<bool>, LaneError> {
        // A claim of this lane cannot be renewed, so the engine never calls this.
        Ok(vec![false; leases.len()])
    }

    /// The contract can release a claim only as a failure: the retry count rises.
    async fn release(&self, leases: &[Lease]) -> Result<usize, LaneError> {
        let as_failed = |lease: &Lease| worker::Completion {
            id: lease.id,
            processor: lease.processor.clone(),
            outcome: Outcome::Failed { error: Some("released before it was sent".to_owned()) },
        };
        let completions: Vec<_> = leases.iter().map(as_failed).collect();
        let mut released = 0;
        for completions in completions.chunks(MAX_BATCH) {
            let release = async |session: &Session| worker::complete_batch(session, completions, false).await;
            released += self.releases.call(release).await?.iter().filter(|end| end.refused.is_none()).count();
        }
        Ok(released)
    }

    /// Claims requeue expired claims themselves, so a repair only removes events past their retention.
    async fn repair(&self) -> Result<Repaired, LaneError> {
        let processed = async |session: &Session, limit| remove_processed_events(session, limit).await;
        retention::remove("events", &self.releases, processed).await;
        Ok(Repaired::default())
    }

    async fn next_due(&self) -> Result<Option<Duration>, LaneError> {
        self.claims.call(async |session| worker::next_due(session).await).await
    }
}

/// The result of a completion. A delivered event passes on to the next of its aggregate in this process which event is
/// first now. If this process holds no other, the engine claims again, provided that no worker holds the next.
fn result(end: Completed, outcome: &EventOutcome) -> CompletionResult {
    match (end.refused, &outcome.outcome) {
        (None, Outcome::Delivered) => {
            let unblocks_rows = match (&outcome.turn, end.next) {
                (Some(turn), Some(next)) => {
                    turn.leave_note(next.id);
                    turn.is_last() && !next.is_claimed
                }
                _ => false,
            };
            CompletionResult::Recorded { state: "DELIVERED", retry_scheduled: false, unblocks_rows }
        }
        (None, Outcome::Failed { .. }) => {
            CompletionResult::Recorded { state: "FAILED", retry_scheduled: true, unblocks_rows: false }
        }
        (Some(CompleteError::LeaseLost(_)), _) => CompletionResult::LeaseLost,
        (Some(error), _) => CompletionResult::Refused(LaneError::from(error).to_string()),
    }
}
