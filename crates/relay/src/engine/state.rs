//! The state of a running engine, and its step function: what to do after each event or deadline. `Phase` and `on_stop`
//! are the graceful shutdown (drain).

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::Id;
use tokio::time::Instant;

use crate::breaker::{Admission, Attempt, BreakerState, Breakers, ClaimLimit};
use crate::call_backoff::{CallBackoff, random_below};
use crate::claim_capacity::ClaimCapacity;
use crate::completion_batcher::CompletionBatcher;
use crate::lane::Lane;
use crate::lease::Term;
use crate::listener::ListenerUpdate;
use crate::metrics::Meter;
use crate::renewal::Renewal;
use crate::settings::Settings;
use crate::simulation::{PlantedBug, is_planted};
use crate::slots::Slots;
use crate::stop::StopMode;
use crate::wake::{Wake, WakeSettings};

use super::Summary;
use super::calls::{Calls, LanePending};
use super::dispatches::Dispatches;
use super::release::Releases;

/// The phases of a shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// No stop was requested.
    Running,
    /// The engine claims no more rows. Running dispatches may continue until the deadline.
    Draining { until: Instant },
    /// Every dispatch has ended. The engine records outcomes and releases leases until the deadline.
    Flushing { until: Instant },
    /// The engine stops at once and lets its leases expire.
    Stopped,
}

/// The state of an engine, owned by one task.
pub(super) struct EngineState<L: Lane> {
    pub(super) lane: Arc<L>,
    pub(super) settings: Settings,
    pub(super) meter: Arc<dyn Meter>,
    pub(super) term: Term,
    pub(super) wake: Wake,
    pub(super) slots: Slots,
    pub(super) breakers: Breakers,
    pub(super) dispatches: Dispatches<L>,
    pub(super) calls: Calls<L>,
    pub(super) completions: CompletionBatcher<L::Lease, L::Outcome>,
    pub(super) renewal: Renewal<Id>,
    pub(super) releases: Releases<L::Lease>,
    /// Every lease that was granted and has not ended: running, to be recorded, or to be released.
    pub(super) held: HashSet<L::Lease>,
    pub(super) claiming: bool,
    /// Whether the next claim follows one that found no row to probe a route with.
    pub(super) repeats_probe: bool,
    pub(super) repair_at: Option<Instant>,
    pub(super) repair_backoff: CallBackoff,
    /// The number of rows ever quarantined, as of the last repair.
    pub(super) quarantined: u64,
    pub(super) phase: Phase,
    pub(super) summary: Summary,
}

impl<L: Lane> EngineState<L> {
    pub(super) fn new(
        lane: Arc<L>,
        settings: Settings,
        meter: Arc<dyn Meter>,
        listener: bool,
        now: Instant,
    ) -> Self {
        let term = lane.term();
        let wake = WakeSettings { debounce: settings.debounce, poll: settings.poll_interval, listener };
        // Relayers that start together must not repair at the same moment.
        let repairs = !settings.repair_every.is_zero();
        let repair_at = repairs.then(|| now + random_below(settings.repair_every));
        Self {
            wake: Wake::new(wake, now),
            slots: Slots::new(
                settings.slots,
                lane.route_count(),
                settings.route_slots.clone(),
                settings.max_batch,
            ),
            breakers: Breakers::new(settings.breaker),
            dispatches: Dispatches::new(Arc::clone(&lane), settings.lease_margin),
            calls: Calls::new(Arc::clone(&lane), settings.call_timeout),
            // Flush as soon as every slot has reported.
            completions: CompletionBatcher::new(settings.flush_interval, settings.slots),
            renewal: Renewal::new(term, settings.lease_margin),
            releases: Releases::new(),
            held: HashSet::new(),
            claiming: false,
            repeats_probe: false,
            repair_at,
            repair_backoff: CallBackoff::with_defaults(),
            quarantined: 0,
            phase: Phase::Running,
            summary: Summary::default(),
            lane,
            settings,
            meter,
            term,
        }
    }

    /// Does what is due. It never waits: calls and dispatches are tasks.
    pub(super) fn step(&mut self, now: Instant) {
        for route in self.breakers.tick(now) {
            self.breaker_changed(&route, BreakerState::HalfOpen);
            self.wake.capacity_freed();
        }
        self.cancel_overdue(now);
        self.expire(now);
        while let Some(batch) = self.completions.take_due(now) {
            self.calls.complete(batch);
        }
        if let Some(ids) = self.renewal.take_due(now) {
            let leases = ids.iter().filter_map(|id| Some(self.dispatches.get_mut(*id)?.lease.clone())).collect();
            self.calls.renew(ids, leases);
        }
        if let Some(leases) = self.releases.take_due(now) {
            if self.phase != Phase::Running && is_planted(PlantedBug::StopWithoutRelease) {
                self.releases.call_returned();
            } else {
                self.calls.release(leases);
            }
        }
        let draining = matches!(self.phase, Phase::Draining { .. });
        if self.phase == Phase::Running || draining && is_planted(PlantedBug::ClaimWhileDraining) {
            self.claim(now);
            if self.wake.is_next_due_lookup_due(now) {
                self.wake.next_due_lookup_sent();
                self.calls.next_due();
            }
            if self.repair_at.is_some_and(|at| at <= now) {
                self.repair_at = None;
                self.calls.repair();
            }
        }
    }

    fn claim(&mut self, now: Instant) {
        let capacity = self.capacity(now);
        let Some(cause) = self.wake.cause(now).filter(|_| capacity.total() > 0) else { return };
        self.meter.wakeup(cause);
        self.wake.claiming(cause, now);
        self.claiming = true;
        self.calls.claim(capacity);
    }

    pub(super) fn capacity(&self, now: Instant) -> ClaimCapacity {
        self.slots.capacity(self.held.len(), self.breakers.limits(), now)
    }

    /// Cancels dispatches whose lease is about to expire, and all of them when the grace period ends.
    fn cancel_overdue(&mut self, now: Instant) {
        for id in self.renewal.overdue(now) {
            self.renewal.ended(id);
            if let Some(dispatch) = self.dispatches.get_mut(id) {
                tracing::warn!(lease = %dispatch.lease, route = %dispatch.route, trace_id = dispatch.trace_id.map(display),
                    "the lease could not be renewed in time: its dispatch is cancelled");
                if !is_planted(PlantedBug::OverdueNotCancelled) {
                    dispatch.cancel();
                }
            }
        }
        if let Phase::Draining { until } = self.phase
            && until <= now
        {
            self.dispatches.cancel_all();
            self.phase = Phase::Flushing { until: now + self.settings.call_timeout };
        }
    }

    /// Drops outcomes and releases whose lease has expired.
    fn expire(&mut self, now: Instant) {
        for pending in self.completions.take_expired(now) {
            self.give_up(&pending, "the lease has expired");
        }
        for lease in self.releases.take_expired(now) {
            self.held.remove(&lease);
        }
    }

    pub(super) fn give_up(&mut self, pending: &LanePending<L>, why: &str) {
        let lease = &pending.completion.lease;
        tracing::error!(%lease, trace_id = pending.trace_id.map(display), why,
            "an outcome could not be recorded: repair requeues the row when its lease expires");
        self.lane.unrecorded(&pending.completion);
        self.held.remove(lease);
        self.meter.given_up();
        self.summary.given_up += 1;
    }

    /// Starts the claimed jobs and releases those that may not start. Returns how many were started.
    pub(super) fn start(
        &mut self,
        jobs: Vec<L::Job>,
        capacity: &ClaimCapacity,
        sent: Instant,
        now: Instant,
    ) -> usize {
        let until = sent + self.term.length();
        let mut claimed: HashMap<Arc<str>, usize> = HashMap::new();
        let mut started = 0;
        let mut last_route: Arc<str> = Arc::from("");
        for job in jobs {
            // The jobs of a claim have few routes.
            if *last_route != *self.lane.route(&job) {
                last_route = Arc::from(self.lane.route(&job));
            }
            let (lease, route) = (self.lane.lease(&job), Arc::clone(&last_route));
            if !self.held.insert(lease.clone()) {
                tracing::error!(%lease, "a claim returned a lease that is held already: it is not dispatched again");
                continue;
            }
            self.summary.claimed += 1;
            let claimed_of_route = claimed.entry(Arc::clone(&route)).or_insert(0);
            *claimed_of_route += 1;
            let late = until.saturating_duration_since(now) <= self.settings.lease_margin;
            let over_capacity = started >= capacity.total() || *claimed_of_route > capacity.most_of(&route);
            if late || over_capacity || self.phase != Phase::Running {
                tracing::debug!(%lease, late, over_capacity, "released without a dispatch");
                self.releases.push(lease, until);
                continue;
            }
            // Rows without a number count as rows that have not failed.
            let is_first = self.lane.origin(&job).attempt.is_none_or(|attempt| attempt <= 1);
            let admission = self.breakers.admit(&route, is_first);
            if admission == Admission::Refuse {
                self.releases.push(lease, until);
                continue;
            }
            started += 1;
            self.summary.started += 1;
            self.meter.dispatch_started(&route);
            self.meter.in_flight(&route, self.slots.take(&route, now));
            let attempt = Attempt { probe: admission == Admission::Probe, is_first };
            let id = self.dispatches.start(job, route, attempt, now, until);
            self.renewal.started(id, sent);
        }
        let mut may_find_probe = false;
        for (route, _) in capacity.per_route().filter(|(route, _)| !claimed.contains_key(*route)) {
            let first = capacity.takes_first_attempt(route);
            let asked = if first { ClaimLimit::FirstAttempt } else { ClaimLimit::One };
            may_find_probe |= self.breakers.found_no_row(route, asked);
        }
        // Once: two routes without rows that ask in turn would cause claims without end.
        self.repeats_probe = may_find_probe && !self.repeats_probe;
        if self.repeats_probe {
            self.wake.capacity_freed();
        }
        self.slots.record_claim(capacity, &claimed);
        started
    }

    pub(super) fn breaker_changed(&self, route: &str, state: BreakerState) {
        match state {
            BreakerState::Open => tracing::warn!(route, "circuit breaker opened"),
            BreakerState::HalfOpen => {
                tracing::info!(route, "circuit breaker half-open: one dispatch at a time probes the route");
            }
            BreakerState::Closed => tracing::info!(route, "circuit breaker closed"),
        }
        self.meter.breaker(route, state);
    }

    pub(super) fn wants_notifications(&mut self) -> bool {
        let wants = self.phase == Phase::Running && self.wake.wants_notifications();
        if !wants {
            self.wake.disarmed();
        }
        wants
    }

    pub(super) fn on_listener(&mut self, update: ListenerUpdate) {
        if update.armed {
            self.wake.armed(update.rearmed);
        } else {
            self.wake.disarmed();
        }
        if update.notified {
            self.wake.notified();
        }
    }

    pub(super) fn on_stop(&mut self, mode: StopMode, now: Instant) {
        match (mode, self.phase) {
            (StopMode::Drain, Phase::Running) => {
                tracing::info!(held = self.held.len(), "stopping: running dispatches may finish");
                self.phase = Phase::Draining { until: now + self.settings.grace };
            }
            (StopMode::Immediate, _) => {
                tracing::warn!(held = self.held.len(), "stopping at once: leases expire");
                self.phase = Phase::Stopped;
            }
            (StopMode::Run | StopMode::Drain, _) => {}
        }
    }

    /// When the next step is due if nothing happens.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let mut times =
            vec![self.completions.next_deadline(), self.renewal.next_deadline(), self.releases.next_deadline()];
        match self.phase {
            Phase::Running => {
                times.extend([self.breakers.next_deadline(), self.repair_at]);
                // Without capacity no claim is due: a slot has to come free first.
                if self.slots.free_slots(self.held.len()) > 0 {
                    times.extend([self.wake.next_claim(), self.wake.next_due_lookup()]);
                }
            }
            Phase::Draining { until } | Phase::Flushing { until } => times.push(Some(until)),
            Phase::Stopped => {}
        }
        times.into_iter().flatten().min()
    }

    /// Whether the engine has stopped: nothing is left to do, or the time is up.
    pub(super) fn is_finished(&self, now: Instant) -> bool {
        let done = self.dispatches.is_empty()
            && self.completions.is_empty()
            && self.releases.is_empty()
            && !self.claiming;
        match self.phase {
            Phase::Running => false,
            Phase::Draining { .. } => done,
            Phase::Flushing { until } => done || until <= now,
            Phase::Stopped => true,
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let left_behind = u64::try_from(self.held.len()).unwrap_or(u64::MAX);
        Summary { left_behind, ..self.summary }
    }

    /// Schedules the next repair.
    pub(super) fn repair_in(&mut self, wait: Duration, now: Instant) {
        self.repair_at = Some(now + wait);
    }
}
