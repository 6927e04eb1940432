//! Circuit breakers, one per route.
//!
//! After several failures in a row the breaker of a route is *open*: claims exclude the route, so its rows stay pending and use
//! no attempts. After a pause it is *half-open*: one dispatch probes the route, and its result closes or reopens the
//! breaker. The pause doubles each time the probe fails.
//!
//! It makes no calls and reads no clock.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::lane::RouteSignal;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Failures in a row that open it; 1 to 1000.
    pub failures: u32,
    /// The first pause; 10 ms at least.
    pub first_pause: Duration,
    /// The longest pause; up to 1 h.
    pub longest_pause: Duration,
}

impl Default for Policy {
    fn default() -> Self {
        Self { failures: 5, first_pause: Duration::from_secs(1), longest_pause: Duration::from_secs(60) }
    }
}

/// The state of a breaker, for metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Health {
    /// The route works.
    Closed,
    /// One dispatch probes whether the route works again.
    HalfOpen,
    /// Nothing is dispatched to the route.
    Open,
}

/// Whether a claimed job may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may.
    Start,
    /// It may, as the probe of a half-open breaker.
    Probe,
    /// It may not: release its lease.
    Refuse,
}

/// The breakers of all routes. A route that never failed has none.
#[derive(Debug)]
pub(crate) struct Breakers {
    policy: Policy,
    routes: HashMap<Arc<str>, State>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Working, after so many failures in a row.
    Closed { failures: u32 },
    /// Open until then; the pause is this long.
    Open { until: Instant, pause: Duration },
    /// Waiting for a probe to start, or to end.
    HalfOpen { probing: bool, pause: Duration },
}

impl Breakers {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, routes: HashMap::new() }
    }

    /// The routes that are limited, and how many rows a claim may lease of each.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.routes.iter().filter_map(|(route, state)| match state {
            State::Closed { .. } => None,
            State::Open { .. } | State::HalfOpen { probing: true, .. } => Some((route, 0)),
            State::HalfOpen { probing: false, .. } => Some((route, 1)),
        })
    }

    /// Whether a claimed job may start. A probe counts as started.
    pub(crate) fn admit(&mut self, route: &str) -> Admission {
        match self.routes.get_mut(route) {
            None | Some(State::Closed { .. }) => Admission::Start,
            Some(State::HalfOpen { probing, .. }) if !*probing => {
                *probing = true;
                Admission::Probe
            }
            Some(State::Open { .. } | State::HalfOpen { .. }) => Admission::Refuse,
        }
    }

    /// Counts the result of a dispatch; the new state if it changed.
    ///
    /// While a breaker is open or half-open, dispatches that started before are ignored.
    pub(crate) fn ended(
        &mut self,
        route: &Arc<str>,
        probe: bool,
        signal: RouteSignal,
        now: Instant,
    ) -> Option<Health> {
        let state = self.routes.entry(Arc::clone(route)).or_insert(State::Closed { failures: 0 });
        let next = match (*state, signal) {
            (State::Closed { .. }, RouteSignal::Healthy) => State::Closed { failures: 0 },
            (State::Closed { failures }, RouteSignal::Failing) if failures + 1 >= self.policy.failures => {
                State::Open { until: now + self.policy.first_pause, pause: self.policy.first_pause }
            }
            (State::Closed { failures }, RouteSignal::Failing) => State::Closed { failures: failures + 1 },
            (State::HalfOpen { .. }, RouteSignal::Healthy) if probe => State::Closed { failures: 0 },
            (State::HalfOpen { pause, .. }, RouteSignal::Failing) if probe => {
                let pause = pause.saturating_mul(2).min(self.policy.longest_pause);
                State::Open { until: now + pause, pause }
            }
            (State::HalfOpen { pause, .. }, RouteSignal::Neutral) if probe => {
                State::HalfOpen { probing: false, pause }
            }
            (same, RouteSignal::Healthy | RouteSignal::Failing | RouteSignal::Neutral) => same,
        };
        let changed = health(next) != health(*state);
        *state = next;
        if matches!(next, State::Closed { failures: 0 }) {
            self.routes.remove(route);
        }
        changed.then_some(health(next))
    }

    /// Moves breakers whose pause has ended to half-open; their routes.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Arc<str>> {
        let mut opened = Vec::new();
        for (route, state) in &mut self.routes {
            if let State::Open { until, pause } = *state
                && until <= now
            {
                *state = State::HalfOpen { probing: false, pause };
                opened.push(Arc::clone(route));
            }
        }
        opened
    }

    /// When the next pause ends.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.routes
            .values()
            .filter_map(|state| if let State::Open { until, .. } = state { Some(*until) } else { None })
            .min()
    }
}

fn health(state: State) -> Health {
    match state {
        State::Closed { .. } => Health::Closed,
        State::Open { .. } => Health::Open,
        State::HalfOpen { .. } => Health::HalfOpen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(breakers: &Breakers, route: &str) -> Option<usize> {
        breakers.limits().find(|(name, _)| &***name == route).map(|(_, limit)| limit)
    }

    #[test]
    fn only_failures_in_a_row_open_a_route() {
        let (mut breakers, wire, now) = (Breakers::new(Policy::default()), Arc::from("wire"), Instant::now());
        for signal in [RouteSignal::Failing; 4] {
            assert_eq!(breakers.ended(&wire, false, signal, now), None);
        }
        assert_eq!(breakers.ended(&wire, false, RouteSignal::Healthy, now), None);
        for signal in [
            RouteSignal::Failing,
            RouteSignal::Failing,
            RouteSignal::Neutral,
            RouteSignal::Failing,
            RouteSignal::Failing,
        ] {
            assert_eq!(breakers.ended(&wire, false, signal, now), None);
        }
        assert_eq!(breakers.admit("wire"), Admission::Start);
        assert_eq!(breakers.ended(&wire, false, RouteSignal::Failing, now), Some(Health::Open));
        assert_eq!(limit(&breakers, "wire"), Some(0));
        assert_eq!(limit(&breakers, "ach"), None);
        assert_eq!(breakers.admit("wire"), Admission::Refuse);
    }

    #[test]
    fn a_pause_doubles_with_each_failed_probe_up_to_the_longest_and_starts_anew_after_a_good_one() {
        let policy = Policy { failures: 1, ..Policy::default() };
        let (mut breakers, wire, mut now) = (Breakers::new(policy), Arc::from("wire"), Instant::now());
        breakers.ended(&wire, false, RouteSignal::Failing, now);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(breakers.next_deadline(), Some(now + Duration::from_secs(seconds)));
            assert!(breakers.tick(now + Duration::from_secs(seconds) - Duration::from_millis(1)).is_empty());
            now += Duration::from_secs(seconds);
            assert_eq!(breakers.tick(now).len(), 1);
            assert_eq!(limit(&breakers, "wire"), Some(1));
            assert_eq!(breakers.admit("wire"), Admission::Probe);
            assert_eq!((limit(&breakers, "wire"), breakers.admit("wire")), (Some(0), Admission::Refuse));
            assert_eq!(breakers.ended(&wire, true, RouteSignal::Failing, now), Some(Health::Open));
        }
        now += Duration::from_secs(60);
        breakers.tick(now);
        breakers.admit("wire");
        assert_eq!(breakers.ended(&wire, false, RouteSignal::Healthy, now), None, "that one started before");
        assert_eq!(breakers.ended(&wire, true, RouteSignal::Healthy, now), Some(Health::Closed));
        breakers.ended(&wire, false, RouteSignal::Failing, now);
        assert_eq!(breakers.next_deadline(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn a_probe_that_says_nothing_makes_room_for_another() {
        let policy = Policy { failures: 1, ..Policy::default() };
        let (mut breakers, wire, now) = (Breakers::new(policy), Arc::from("wire"), Instant::now());
        breakers.ended(&wire, false, RouteSignal::Failing, now);
        breakers.tick(now + Duration::from_secs(1));
        breakers.admit("wire");
        assert_eq!(breakers.ended(&wire, true, RouteSignal::Neutral, now), None);
        assert_eq!(limit(&breakers, "wire"), Some(1));
    }
}
