//! Circuit breakers, one per route: when dispatch to a failing rail, sink or store stops, and when a probe lets it resume.
//!
//! After several failures in a row the breaker of a route is *open*: claims exclude the route, so its rows stay
//! pending and use no attempts. After a pause it is *half-open*: one dispatch probes the route, and its result closes
//! the breaker or opens it again. The pause doubles each time the probe fails.
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
    pub open_for: Duration,
    /// The longest pause; up to 1 h.
    pub max_open_for: Duration,
}

/// `symphony run` takes its defaults from `symphony.example.toml`.
impl Default for Policy {
    fn default() -> Self {
        Self { failures: 5, open_for: Duration::from_secs(1), max_open_for: Duration::from_secs(60) }
    }
}

/// The state of a breaker, for metrics and logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
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
    routes: HashMap<Arc<str>, Breaker>,
}

#[derive(Clone, Copy, Debug)]
enum Breaker {
    /// The route works, after this number of failures in a row.
    Closed { failures: u32 },
    /// Nothing is dispatched until then, after a pause of this length.
    Open { until: Instant, pause: Duration },
    /// One probe may start, or is running.
    HalfOpen { probing: bool, pause: Duration },
}

impl Breakers {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, routes: HashMap::new() }
    }

    /// The routes that are limited, and how many rows a claim may lease of each.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (&Arc<str>, usize)> {
        self.routes.iter().filter_map(|(route, state)| match state {
            Breaker::Closed { .. } => None,
            Breaker::Open { .. } | Breaker::HalfOpen { probing: true, .. } => Some((route, 0)),
            Breaker::HalfOpen { probing: false, .. } => Some((route, 1)),
        })
    }

    /// Whether a claimed job may start. A probe counts as started.
    pub(crate) fn admit(&mut self, route: &str) -> Admission {
        match self.routes.get_mut(route) {
            None | Some(Breaker::Closed { .. }) => Admission::Start,
            Some(Breaker::HalfOpen { probing, .. }) if !*probing => {
                *probing = true;
                Admission::Probe
            }
            Some(Breaker::Open { .. } | Breaker::HalfOpen { .. }) => Admission::Refuse,
        }
    }

    /// Counts the result of a dispatch; the new state if it changed.
    ///
    /// While a breaker is open or half-open, dispatches that started before are ignored.
    pub(crate) fn record_result(
        &mut self,
        route: &Arc<str>,
        probe: bool,
        signal: RouteSignal,
        now: Instant,
    ) -> Option<BreakerState> {
        let state = self.routes.entry(Arc::clone(route)).or_insert(Breaker::Closed { failures: 0 });
        let next = match (*state, signal) {
            (Breaker::Closed { .. }, RouteSignal::Healthy) => Breaker::Closed { failures: 0 },
            (Breaker::Closed { failures }, RouteSignal::Failing) if failures + 1 >= self.policy.failures => {
                // Opens.
                Breaker::Open { until: now + self.policy.open_for, pause: self.policy.open_for }
            }
            (Breaker::Closed { failures }, RouteSignal::Failing) => Breaker::Closed { failures: failures + 1 },
            (Breaker::HalfOpen { .. }, RouteSignal::Healthy) if probe => Breaker::Closed { failures: 0 },
            (Breaker::HalfOpen { pause, .. }, RouteSignal::Failing) if probe => {
                // Opens again, for twice the pause.
                let pause = pause.saturating_mul(2).min(self.policy.max_open_for);
                Breaker::Open { until: now + pause, pause }
            }
            (Breaker::HalfOpen { pause, .. }, RouteSignal::Neutral) if probe => {
                Breaker::HalfOpen { probing: false, pause }
            }
            (same, RouteSignal::Healthy | RouteSignal::Failing | RouteSignal::Neutral) => same,
        };
        let changed = public_state(next) != public_state(*state);
        *state = next;
        if matches!(next, Breaker::Closed { failures: 0 }) {
            self.routes.remove(route);
        }
        changed.then_some(public_state(next))
    }

    /// Moves breakers whose pause has ended to half-open; their routes.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Arc<str>> {
        let mut half_open = Vec::new();
        for (route, state) in &mut self.routes {
            if let Breaker::Open { until, pause } = *state
                && until <= now
            {
                *state = Breaker::HalfOpen { probing: false, pause };
                half_open.push(Arc::clone(route));
            }
        }
        half_open
    }

    /// When the next pause ends.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.routes
            .values()
            .filter_map(|state| if let Breaker::Open { until, .. } = state { Some(*until) } else { None })
            .min()
    }
}

fn public_state(breaker: Breaker) -> BreakerState {
    match breaker {
        Breaker::Closed { .. } => BreakerState::Closed,
        Breaker::Open { .. } => BreakerState::Open,
        Breaker::HalfOpen { .. } => BreakerState::HalfOpen,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(breakers: &Breakers, route: &str) -> Option<usize> {
        breakers.limits().find(|(name, _)| &***name == route).map(|(_, limit)| limit)
    }

    #[test]
    fn only_failures_in_a_row_open_a_breaker() {
        let (mut breakers, wire, now) = (Breakers::new(Policy::default()), Arc::from("wire"), Instant::now());
        for signal in [RouteSignal::Failing; 4] {
            assert_eq!(breakers.record_result(&wire, false, signal, now), None);
        }
        assert_eq!(breakers.record_result(&wire, false, RouteSignal::Healthy, now), None);
        for signal in [
            RouteSignal::Failing,
            RouteSignal::Failing,
            RouteSignal::Neutral,
            RouteSignal::Failing,
            RouteSignal::Failing,
        ] {
            assert_eq!(breakers.record_result(&wire, false, signal, now), None);
        }
        assert_eq!(breakers.admit("wire"), Admission::Start);
        assert_eq!(breakers.record_result(&wire, false, RouteSignal::Failing, now), Some(BreakerState::Open));
        assert_eq!(limit(&breakers, "wire"), Some(0));
        assert_eq!(limit(&breakers, "ach"), None);
        assert_eq!(breakers.admit("wire"), Admission::Refuse);
    }

    #[test]
    fn the_pause_doubles_with_each_failed_probe_up_to_the_longest_and_resets_after_a_success() {
        let policy = Policy { failures: 1, ..Policy::default() };
        let (mut breakers, wire, mut now) = (Breakers::new(policy), Arc::from("wire"), Instant::now());
        breakers.record_result(&wire, false, RouteSignal::Failing, now);
        for seconds in [1, 2, 4, 8, 16, 32, 60, 60] {
            assert_eq!(breakers.next_deadline(), Some(now + Duration::from_secs(seconds)));
            assert!(breakers.tick(now + Duration::from_secs(seconds) - Duration::from_millis(1)).is_empty());
            now += Duration::from_secs(seconds);
            assert_eq!(breakers.tick(now).len(), 1);
            assert_eq!(limit(&breakers, "wire"), Some(1));
            assert_eq!(breakers.admit("wire"), Admission::Probe);
            assert_eq!((limit(&breakers, "wire"), breakers.admit("wire")), (Some(0), Admission::Refuse));
            assert_eq!(breakers.record_result(&wire, true, RouteSignal::Failing, now), Some(BreakerState::Open));
        }
        now += Duration::from_secs(60);
        breakers.tick(now);
        breakers.admit("wire");
        assert_eq!(
            breakers.record_result(&wire, false, RouteSignal::Healthy, now),
            None,
            "it started before the breaker opened"
        );
        assert_eq!(breakers.record_result(&wire, true, RouteSignal::Healthy, now), Some(BreakerState::Closed));
        breakers.record_result(&wire, false, RouteSignal::Failing, now);
        assert_eq!(breakers.next_deadline(), Some(now + Duration::from_secs(1)));
    }

    #[test]
    fn after_a_probe_without_a_result_another_may_start() {
        let policy = Policy { failures: 1, ..Policy::default() };
        let (mut breakers, wire, now) = (Breakers::new(policy), Arc::from("wire"), Instant::now());
        breakers.record_result(&wire, false, RouteSignal::Failing, now);
        breakers.tick(now + Duration::from_secs(1));
        breakers.admit("wire");
        assert_eq!(breakers.record_result(&wire, true, RouteSignal::Neutral, now), None);
        assert_eq!(limit(&breakers, "wire"), Some(1));
    }
}
