//! The state of a running engine, and what it does each time something has happened or come due.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::task::Id;
use tokio::time::Instant;

use crate::backoff::{Backoff, share};
use crate::bell::Heard;
use crate::breaker::{Admission, Breakers, Health};
use crate::claim_capacity::ClaimCapacity;
use crate::completion_batcher::CompletionBatcher;
use crate::lane::Lane;
use crate::lease::Term;
use crate::metrics::Meter;
use crate::renewal::Renewal;
use crate::settings::Settings;
use crate::slots::Slots;
use crate::stop::Wish;
use crate::wake::{Rhythm, Wake};

use super::Summary;
use super::calls::{Calls, LanePending};
use super::flights::Flights;
use super::release::Releases;

/// How far an engine is on its way out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It works.
    Working,
    /// It claims nothing more; dispatches may go on until then.
    Finishing { until: Instant },
    /// Nothing runs any more; what is left may be recorded and given back until then.
    Closing { until: Instant },
    /// It leaves everything as it is.
    Leaving,
}

/// Everything that one task owns.
pub(super) struct Shift<L: Lane> {
    pub(super) lane: Arc<L>,
    pub(super) settings: Settings,
    pub(super) meter: Arc<dyn Meter>,
    pub(super) term: Term,
    pub(super) wake: Wake,
    pub(super) slots: Slots,
    pub(super) breakers: Breakers,
    pub(super) flights: Flights<L>,
    pub(super) calls: Calls<L>,
    pub(super) completions: CompletionBatcher<L::Lease, L::Outcome>,
    pub(super) renewal: Renewal<Id>,
    pub(super) releases: Releases<L::Lease>,
    /// Every lease that was granted and is not known to be over: running, to be recorded, or to be given back.
    pub(super) held: HashSet<L::Lease>,
    pub(super) claiming: bool,
    pub(super) repair_at: Option<Instant>,
    pub(super) repair_backoff: Backoff,
    /// Rows that were ever quarantined, as the last pass of repair said.
    pub(super) quarantined: u64,
    pub(super) phase: Phase,
    pub(super) summary: Summary,
}

impl<L: Lane> Shift<L> {
    pub(super) fn new(lane: Arc<L>, settings: Settings, meter: Arc<dyn Meter>, bell: bool, now: Instant) -> Self {
        let term = lane.term();
        let rhythm = Rhythm { window: settings.window, poll: settings.poll, bell };
        // A fleet that was started together must not repair together for ever.
        let repairs = !settings.repair_every.is_zero();
        let repair_at = repairs.then(|| now + share(settings.repair_every));
        Self {
            wake: Wake::new(rhythm, now),
            slots: Slots::new(settings.slots, settings.route_slots.clone(), settings.batch),
            breakers: Breakers::new(settings.breaker),
            flights: Flights::new(Arc::clone(&lane), settings.lease_margin),
            calls: Calls::new(Arc::clone(&lane), settings.call_timeout),
            // Flush as soon as every slot has reported.
            completions: CompletionBatcher::new(settings.gather, settings.slots),
            renewal: Renewal::new(term, settings.lease_margin),
            releases: Releases::new(),
            held: HashSet::new(),
            claiming: false,
            repair_at,
            repair_backoff: Backoff::of_calls(),
            quarantined: 0,
            phase: Phase::Working,
            summary: Summary::default(),
            lane,
            settings,
            meter,
            term,
        }
    }

    /// Does whatever is due. Takes no time: all that does is a task.
    pub(super) fn act(&mut self, now: Instant) {
        for route in self.breakers.tick(now) {
            self.health(&route, Health::HalfOpen);
            self.wake.nudge();
        }
        self.cut_off(now);
        self.expire(now);
        while let Some(batch) = self.completions.take_due(now) {
            self.calls.complete(batch);
        }
        if let Some(ids) = self.renewal.due(now) {
            let leases = ids.iter().filter_map(|id| Some(self.flights.get_mut(*id)?.lease.clone())).collect();
            self.calls.renew(ids, leases);
        }
        if let Some(leases) = self.releases.due(now) {
            self.calls.release(leases);
        }
        if self.phase == Phase::Working {
            self.claim(now);
            if self.wake.asks_due(now) {
                self.wake.asking_due();
                self.calls.next_due();
            }
            if self.repair_at.is_some_and(|at| at <= now) {
                self.repair_at = None;
                self.calls.repair();
            }
        }
    }

    fn claim(&mut self, now: Instant) {
        let capacity = self.capacity();
        let Some(cause) = self.wake.cause(now).filter(|_| capacity.total() > 0) else { return };
        self.meter.wakeup(cause);
        self.wake.claiming(cause, now);
        self.claiming = true;
        self.calls.claim(capacity);
    }

    fn capacity(&self) -> ClaimCapacity {
        self.slots.capacity(self.held.len(), self.breakers.limits())
    }

    /// Ends dispatches whose lease cannot be trusted any longer, and at the end of the grace time all of them.
    fn cut_off(&mut self, now: Instant) {
        for id in self.renewal.over(now) {
            self.renewal.ended(id);
            if let Some(flight) = self.flights.get_mut(id) {
                tracing::warn!(lease = %flight.lease, route = %flight.route, trace_id = flight.trace_id.map(display),
                    "the lease could not be renewed in time: its dispatch is cut off");
                flight.cut_off();
            }
        }
        if let Phase::Finishing { until } = self.phase
            && until <= now
        {
            self.flights.all().for_each(super::flights::Flight::cut_off);
            self.phase = Phase::Closing { until: now + self.settings.call_timeout };
        }
    }

    /// Lets go of what nobody can record or give back any more.
    fn expire(&mut self, now: Instant) {
        for pending in self.completions.take_expired(now) {
            self.give_up(&pending, "the lease is over");
        }
        for lease in self.releases.expired(now) {
            self.held.remove(&lease);
        }
    }

    pub(super) fn give_up(&mut self, pending: &LanePending<L>, why: &str) {
        let lease = &pending.done.lease;
        tracing::error!(%lease, trace_id = pending.trace_id.map(display), why,
            "an outcome could not be recorded: the lease expires, and repair decides");
        self.held.remove(lease);
        self.meter.given_up();
        self.summary.given_up += 1;
    }

    /// Starts what a claim brought; gives back what may not start. How many were started.
    pub(super) fn start(
        &mut self,
        jobs: Vec<L::Job>,
        capacity: &ClaimCapacity,
        sent: Instant,
        now: Instant,
    ) -> usize {
        let until = sent + self.term.length();
        let mut brought: HashMap<Arc<str>, usize> = HashMap::new();
        let mut started = 0;
        for job in jobs {
            let (lease, route) = (self.lane.lease(&job), Arc::<str>::from(self.lane.route(&job)));
            if !self.held.insert(lease.clone()) {
                tracing::error!(%lease, "a claim brought a lease that is held already: it is not dispatched again");
                continue;
            }
            self.summary.claimed += 1;
            let of_route = brought.entry(Arc::clone(&route)).or_insert(0);
            *of_route += 1;
            let late = until.saturating_duration_since(now) <= self.settings.lease_margin;
            let crowded = started >= capacity.total() || *of_route > capacity.for_route(&route);
            if late || crowded || self.phase != Phase::Working {
                tracing::debug!(%lease, late, crowded, "claimed and given back unstarted");
                self.releases.give_back(lease, until);
                continue;
            }
            let admission = self.breakers.admit(&route);
            if admission == Admission::Refuse {
                self.releases.give_back(lease, until);
                continue;
            }
            started += 1;
            self.summary.started += 1;
            self.meter.dispatch_started(&route);
            self.meter.in_flight(&route, self.slots.take(&route));
            let id = self.flights.start(job, route, admission == Admission::Probe, until);
            self.renewal.started(id, sent);
        }
        self.slots.note(capacity, &brought);
        started
    }

    pub(super) fn health(&self, route: &str, health: Health) {
        match health {
            Health::Open => tracing::warn!(route, "the route fails over and over: it is left alone for a while"),
            Health::HalfOpen => tracing::info!(route, "the route is tried again with one job"),
            Health::Closed => tracing::info!(route, "the route works again"),
        }
        self.meter.breaker(route, health);
    }

    pub(super) fn wants_bell(&mut self) -> bool {
        let wants = self.phase == Phase::Working && self.wake.wants_bell();
        if !wants {
            self.wake.disarmed();
        }
        wants
    }

    pub(super) fn heard(&mut self, heard: Heard) {
        if heard.armed {
            self.wake.armed(heard.anew);
        } else {
            self.wake.disarmed();
        }
        if heard.rang {
            self.wake.rang();
        }
    }

    pub(super) fn told(&mut self, wish: Wish, now: Instant) {
        match (wish, self.phase) {
            (Wish::Finish, Phase::Working) => {
                tracing::info!(held = self.held.len(), "stopping: what runs may finish");
                self.phase = Phase::Finishing { until: now + self.settings.grace };
            }
            (Wish::Leave, _) => {
                tracing::warn!(held = self.held.len(), "leaving at once: leases expire");
                self.phase = Phase::Leaving;
            }
            (Wish::Run | Wish::Finish, _) => {}
        }
    }

    /// When to act next if nothing happens.
    pub(super) fn next(&self) -> Option<Instant> {
        let mut times = vec![self.completions.next_deadline(), self.renewal.next(), self.releases.next()];
        match self.phase {
            Phase::Working => {
                times.extend([self.breakers.next(), self.repair_at]);
                // Without room, time alone brings no claim: a slot has to come free first.
                if self.capacity().total() > 0 {
                    times.extend([self.wake.next_claim(), self.wake.next_due_question()]);
                }
            }
            Phase::Finishing { until } | Phase::Closing { until } => times.push(Some(until)),
            Phase::Leaving => {}
        }
        times.into_iter().flatten().min()
    }

    /// Whether there is nothing left to do, or no time to do it.
    pub(super) fn is_over(&self, now: Instant) -> bool {
        let done =
            self.flights.is_empty() && self.completions.is_empty() && self.releases.is_empty() && !self.claiming;
        match self.phase {
            Phase::Working => false,
            Phase::Finishing { .. } => done,
            Phase::Closing { until } => done || until <= now,
            Phase::Leaving => true,
        }
    }

    pub(super) fn summary(&self) -> Summary {
        let left_behind = u64::try_from(self.held.len()).unwrap_or(u64::MAX);
        Summary { left_behind, ..self.summary }
    }

    /// When the next pass of repair begins.
    pub(super) fn repair_in(&mut self, wait: Duration, now: Instant) {
        self.repair_at = Some(now + wait);
    }
}
