//! The checks of the invariants, at each call, dispatch and end.

use std::sync::Arc;
use std::time::Duration;

use symphony_relay::Summary;
use symphony_relay::breaker::BreakerState;
use symphony_relay::claim_capacity::ClaimCapacity;
use symphony_relay::lane::Completion;
use symphony_relay::lease::Term;
use symphony_relay::stop::StopMode;

use super::faults::{Call, DispatchEnd};
use super::invariants::Invariant;
use super::lane::{Lease, Outcome};
use super::scenario::{ROUTES, ms};
use super::state::{LeaseRecord, State, TIMER};

/// How long closing the listener may take at the end of an engine.
const DISARM: Duration = Duration::from_secs(1);
/// The calls of one kind that may be in flight: completions, then the others. Claims that timed out are counted apart.
const COMPLETIONS_IN_FLIGHT: usize = 4;

impl State {
    /// Checks what holds at any moment.
    pub(crate) fn check_running(&mut self) {
        if self.is_stall_over_now() || self.violation.is_some() {
            return;
        }
        let now = self.now();
        for token in &self.running {
            let record = &self.leases[token];
            let engine = &self.engines[record.engine];
            let (lease, grace) = (record.lease, engine.settings.grace);
            let problem = if record.lost.is_some_and(|lost| now > lost) {
                (Invariant::LostLeaseAbandoned, format!("{lease} was lost, and its dispatch runs on"))
            } else if now > record.expires.saturating_sub(engine.settings.lease_margin) + TIMER {
                let expires = record.expires;
                (Invariant::DispatchEndsBeforeLease, format!("{lease} expires at {expires:?}, and is dispatched"))
            } else if engine.stop.is_some_and(|(mode, at)| match mode {
                StopMode::Run => false,
                StopMode::Drain => now > at + grace + TIMER + self.stalled_for,
                StopMode::Immediate => now > at + TIMER,
            }) {
                (Invariant::StopInTime, format!("{lease} is dispatched after the stop"))
            } else {
                continue;
            };
            return self.violate(problem.0, problem.1);
        }
        for (number, engine) in self.engines.iter().enumerate().filter(|(_, engine)| engine.ended.is_none()) {
            let Some((mode, at)) = engine.stop else { continue };
            let settings = &engine.settings;
            let limit = match mode {
                StopMode::Run => continue,
                StopMode::Drain => settings.grace + settings.call_timeout + DISARM + self.stalled_for,
                StopMode::Immediate => Duration::ZERO,
            };
            if now > at + limit + TIMER {
                let seen = format!("engine {number} was stopped at {at:?} ({mode:?}), and runs");
                return self.violate(Invariant::StopInTime, seen);
            }
        }
    }

    /// Checks a call of any kind when it is sent.
    pub(crate) fn check_call(&mut self, engine: usize, call: Call) {
        let decided = self.decided();
        let record = &self.engines[engine];
        let stopped = record.stop.filter(|(_, at)| decided > *at).map(|(mode, _)| mode);
        let reads = matches!(call, Call::Claim | Call::Repair | Call::NextDue);
        let has_ended = record.ended.is_some_and(|at| decided > at);
        if call != Call::Arm && (stopped == Some(StopMode::Immediate) || stopped.is_some() && reads || has_ended) {
            return self.violate(Invariant::StopEndsCalls, format!("{call:?} after the stop"));
        }
        let most = match call {
            Call::Claim => 1 + self.late_claims(engine),
            Call::Complete => COMPLETIONS_IN_FLIGHT,
            Call::Renew | Call::Release | Call::Repair | Call::NextDue | Call::Arm => 1,
        };
        let in_flight = self.engines[engine].in_flight[call as usize] + 1;
        // A call that timed out at this moment may not be dropped yet.
        if in_flight > 2 * most {
            self.violate(Invariant::Bounded, format!("{in_flight} calls in flight: {call:?}"));
        }
    }

    /// The claims that may have timed out and still wait for their answer, until their leases expire.
    fn late_claims(&self, engine: usize) -> usize {
        let timeout = self.engines[engine].settings.call_timeout.as_millis();
        usize::try_from(self.scenario.term.length().as_millis() / timeout).unwrap_or(0) + 1
    }

    /// Checks a claim when it is sent.
    pub(crate) fn check_claim(&mut self, engine: usize, capacity: &ClaimCapacity) {
        let (now, decided) = (self.now(), self.decided());
        let late_claims = self.late_claims(engine);
        let leases = &self.leases;
        let record = &mut self.engines[engine];
        record.last_claim = Some((now, capacity.clone()));
        record.unsettled.retain(|token| leases[token].settled.is_none() && leases[token].expires > now);
        let (settings, total, held) = (&record.settings, capacity.total(), record.unsettled.len());
        let running = |route: Option<&str>| {
            let of_engine = self.running.iter().map(|token| &leases[token]).filter(|lease| lease.engine == engine);
            of_engine.filter(|lease| route.is_none_or(|route| route == lease.route)).count()
        };
        let mut problem = None;
        if total == 0 || total > settings.max_batch || total + running(None) > settings.slots {
            problem = Some((Invariant::WithinCapacity, format!("a claim of {total}, {} running", running(None))));
        }
        if held > settings.slots * (2 + late_claims) {
            problem = Some((Invariant::Bounded, format!("{held} leases are held")));
        }
        for route in ROUTES {
            let limit = capacity.for_route(route);
            let most = settings.route_slots.get(route).copied().unwrap_or(settings.slots);
            if limit > total || limit + running(Some(route)) > most {
                problem = Some((Invariant::WithinCapacity, format!("a claim of {limit} for {route}")));
            }
            let Some(breaker) = record.breakers.get(route).filter(|breaker| breaker.since < decided) else {
                continue;
            };
            if breaker.state == BreakerState::Open && limit > 0
                || breaker.state == BreakerState::HalfOpen && limit > 1
            {
                problem = Some((Invariant::BreakerHolds, format!("a claim of {limit} for {route}: {breaker:?}")));
            }
        }
        if let Some((invariant, seen)) = problem {
            self.violate(invariant, seen);
        }
    }

    /// Checks a dispatch when it starts.
    pub(crate) fn check_dispatch(&mut self, lease: Lease, remaining: Duration) {
        let now = self.now();
        let record = &self.leases[&lease.token];
        let engine = &self.engines[record.engine];
        let mut problem = None;
        if record.dispatched {
            problem = Some((Invariant::DispatchedOnce, format!("{lease} is dispatched again")));
        }
        let expired = now + engine.settings.lease_margin >= record.expires;
        if remaining.is_zero() || expired || record.lost.is_some_and(|lost| lost < now) || record.settled.is_some()
        {
            problem = Some((Invariant::LiveLease, format!("{lease} starts, {:?} before its end", record.expires)));
        }
        let running = || self.running.iter().map(|token| &self.leases[token]);
        let same_row = |other: &&LeaseRecord| other.lease.row == lease.row;
        if !self.clock_stepped && !self.is_stall_over_now() && running().any(|other| same_row(&other)) {
            problem = Some((Invariant::ExclusiveRow, format!("{lease} starts beside another")));
        }
        let of_engine = || running().filter(|other| other.engine == record.engine);
        let of_route = || of_engine().filter(|other| other.route == record.route);
        let limit = engine.settings.route_slots.get(record.route).copied().unwrap_or(usize::MAX);
        if of_engine().count() >= engine.settings.slots || of_route().count() >= limit {
            problem = Some((Invariant::WithinSlots, format!("{lease} starts without a free slot")));
        }
        if let Some(breaker) = engine.breakers.get(record.route) {
            let is_later = |other: &LeaseRecord| breaker.opened.is_some_and(|opened| other.delivered > opened);
            let probes = of_route().filter(|other| is_later(other)).count();
            let holds = match breaker.state {
                BreakerState::Closed => true,
                BreakerState::HalfOpen => probes == 0,
                BreakerState::Open => false,
            };
            if is_later(record) && !holds {
                problem = Some((Invariant::BreakerHolds, format!("{lease} starts: {breaker:?}")));
            }
        }
        if let Some((invariant, seen)) = problem {
            self.violate(invariant, seen);
        }
    }

    /// Checks completions when they are sent.
    pub(crate) fn check_completions(&mut self, batch: &[Arc<Completion<Lease, Outcome>>]) {
        let (now, decided) = (self.now(), self.decided());
        for completion in batch {
            let (lease, outcome) = (completion.lease, completion.outcome);
            let record = &self.leases[&lease.token];
            let own = match record.end {
                Some(end) => outcome.end == end,
                None => record.abandoned && outcome.end == DispatchEnd::Unknown,
            };
            let problem = if decided >= record.expires {
                (Invariant::CompletedInTime, format!("{lease} expired at {:?}", record.expires))
            } else if record.settled.is_some() || record.in_call || record.release_sent {
                (Invariant::RecordedOnce, format!("{lease} is completed again"))
            } else if record.lost.is_some_and(|lost| lost < now) {
                (Invariant::LostLeaseAbandoned, format!("{lease} is completed"))
            } else if !record.dispatched {
                (Invariant::UnsentNotRecorded, format!("{lease} is completed"))
            } else if !own || outcome.token != lease.token {
                (Invariant::OwnOutcome, format!("{lease}: {outcome:?}, and its dispatch: {:?}", record.end))
            } else {
                continue;
            };
            return self.violate(problem.0, problem.1);
        }
    }

    /// Checks a renewal when it is sent.
    pub(crate) fn check_renewal(&mut self, leases: &[Lease]) {
        let decided = self.decided();
        if matches!(self.scenario.term, Term::Fixed(_)) {
            return self.violate(Invariant::FixedLeaseNotRenewed, format!("{leases:?}"));
        }
        for lease in leases {
            let record = &self.leases[&lease.token];
            let problem = if record.lost.is_some_and(|lost| lost < decided) {
                Invariant::LostLeaseAbandoned
            } else if [record.settled, record.dropped].into_iter().flatten().any(|ended| ended < decided) {
                Invariant::RecordedOnce
            } else {
                continue;
            };
            return self.violate(problem, format!("{lease} is renewed"));
        }
    }

    /// Checks a release when it is sent.
    pub(crate) fn check_release(&mut self, leases: &[Lease]) {
        for lease in leases {
            let record = &self.leases[&lease.token];
            let problem = if record.dispatched {
                Invariant::ReleasedUnsent
            } else if record.settled.is_some() || record.in_call {
                Invariant::RecordedOnce
            } else {
                continue;
            };
            return self.violate(problem, format!("{lease} is released"));
        }
    }

    /// Checks an engine that has ended by itself.
    pub(crate) fn check_end(&mut self, engine: usize, summary: Summary) {
        let now = self.now();
        let record = &self.engines[engine];
        let Some((StopMode::Drain, stopped)) = record.stop else { return };
        if self.finishing && summary.left_behind > 0 {
            return self.violate(Invariant::NothingHeld, format!("{} leases", summary.left_behind));
        }
        // At the end of its time an engine gives up on a release that hangs.
        let in_time = now + TIMER < stopped + record.settings.grace + record.settings.call_timeout;
        let dropped = |lease: &&LeaseRecord| {
            let unsent = lease.engine == engine && lease.in_time && !lease.dispatched && !lease.release_sent;
            unsent && lease.settled.is_none() && lease.lost.is_none() && lease.expires > now
        };
        if let Some(lease) = self.leases.values().find(dropped).filter(|_| in_time) {
            let seen = format!("{} is held until {:?}", lease.lease, lease.expires);
            self.violate(Invariant::StopReleases, seen);
        }
    }

    /// Checks, once every row has ended, that this engine has all of its capacity back. Whether it has claimed since.
    pub(crate) fn check_capacity(&mut self, engine: usize, since: Duration) -> bool {
        let record = &self.engines[engine];
        let Some((_, capacity)) = record.last_claim.as_ref().filter(|(at, _)| *at >= since) else { return false };
        let most = record.settings.slots.min(record.settings.max_batch);
        let closed =
            ROUTES.iter().find(|route| capacity.for_route(route) == 0 && !capacity.takes_first_attempt(route));
        if capacity.total() != most || closed.is_some() {
            self.violate(
                Invariant::CapacityReturned,
                format!("engine {engine} claims for {capacity:?} of {most}"),
            );
        }
        true
    }

    /// Checks that every row has ended in time. Whether all have.
    pub(crate) fn check_progress(&mut self) -> bool {
        if self.database.is_drained() {
            return true;
        }
        if self.now() > self.scenario.deadline + self.stalled_for + ms(1) {
            self.violate(Invariant::Progress, format!("{:?}", self.database.open_rows()));
        }
        false
    }
}
