//! Circuit breakers, one per route: when dispatch to a failing rail, sink or store stops, and when a probe lets it resume.
//!
//! A row that fails alone must not stop the others of its route, so failures count against the row first:
//!
//! - Several rows in a row that fail at their first attempt make a route suspect. Rows that had failed before do so
//!   only if no other result arrives for the length of the first pause.
//! - The breaker of a suspect route is *half-open* at once: dispatches *probe* the route one at a time, with rows that
//!   have not been attempted where there are any. One that gets an answer closes the breaker.
//! - After [`PROBES`] failures it is *open*: claims exclude the route, so its rows stay pending and use no attempts. After
//!   a pause it is half-open again. The pause doubles each time the probes fail.
//! - If all of those probes were rows that had failed before, they say little about the route: during the pause, the
//!   first row that is due and has not been attempted probes it early.
//!
//! It makes no calls and reads no clock.

mod state;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::lane::RouteSignal;

use state::Breaker;

/// How many rows probe a half-open breaker, one after the other, before it opens.
const PROBES: u32 = 3;

/// When a breaker opens, and for how long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// Failures in a row, of different rows, that open it unless a probe gets an answer; 1 to 1000.
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
    /// One dispatch at a time probes whether the route works.
    HalfOpen,
    /// Nothing is dispatched to the route.
    Open,
}

/// Whether a claimed job may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Admission {
    /// It may.
    Start,
    /// It may, as a probe.
    Probe,
    /// It may not: release its lease.
    Refuse,
}

/// How many rows of a route a claim may lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClaimLimit {
    /// None.
    Nothing,
    /// One that has not been attempted before.
    FirstAttempt,
    /// Any one.
    One,
}

/// What a dispatch was, for its breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attempt {
    /// Whether it is a probe.
    pub(crate) probe: bool,
    /// Whether its row had not been attempted before.
    pub(crate) is_first: bool,
}

/// The breakers of all routes. A route that never failed has none.
#[derive(Debug)]
pub(crate) struct Breakers {
    policy: Policy,
    routes: HashMap<Arc<str>, Breaker>,
}

impl Breakers {
    pub(crate) fn new(policy: Policy) -> Self {
        Self { policy, routes: HashMap::new() }
    }

    /// The routes that are limited.
    pub(crate) fn limits(&self) -> impl Iterator<Item = (&Arc<str>, ClaimLimit)> {
        self.routes.iter().filter_map(|(route, breaker)| breaker.limit().map(|limit| (route, limit)))
    }

    /// Whether a claimed job may start. A probe counts as started.
    pub(crate) fn admit(&mut self, route: &str, is_first: bool) -> Admission {
        self.routes.get_mut(route).map_or(Admission::Start, |breaker| breaker.admit(is_first))
    }

    /// A claim found no row of this route. If it asked for a first attempt, any row may probe the route now. Whether
    /// the next claim may therefore find one.
    pub(crate) fn found_no_row(&mut self, route: &str, asked: ClaimLimit) -> bool {
        self.routes.get_mut(route).is_some_and(|breaker| breaker.found_no_row(asked))
    }

    /// Whether another row is to probe this route now.
    pub(crate) fn wants_probe(&self, route: &str) -> bool {
        self.routes.get(route).is_some_and(Breaker::wants_probe)
    }

    /// Counts the result of a dispatch; the new state if it changed.
    ///
    /// While a breaker is open or half-open, dispatches that started before are ignored.
    pub(crate) fn record_result(
        &mut self,
        route: &Arc<str>,
        attempt: Attempt,
        signal: RouteSignal,
        now: Instant,
    ) -> Option<BreakerState> {
        let breaker = self.routes.entry(Arc::clone(route)).or_insert_with(|| Breaker::closed(now));
        let before = breaker.public_state();
        *breaker = breaker.after(attempt, signal, now, &self.policy);
        let after = breaker.public_state();
        if breaker.is_untroubled() {
            self.routes.remove(route);
        }
        (after != before).then_some(after)
    }

    /// Moves breakers whose pause has ended to half-open; their routes.
    pub(crate) fn tick(&mut self, now: Instant) -> Vec<Arc<str>> {
        let ended = self
            .routes
            .iter_mut()
            .filter_map(|(route, breaker)| breaker.end_pause(now, &self.policy).then(|| Arc::clone(route)));
        let mut half_open: Vec<_> = ended.collect();
        // In a fixed order, so that a run can be repeated.
        half_open.sort_unstable();
        half_open
    }

    /// When the next pause ends.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        self.routes.values().filter_map(Breaker::pause_end).min()
    }
}

#[cfg(test)]
mod tests;
