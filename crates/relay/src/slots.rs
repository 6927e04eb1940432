//! Concurrency limits: how many dispatches run in this process, in total and per route.
//!
//! A claim never asks for more rows than there are free slots: a row that is leased and cannot start is blocked for
//! every other worker.
//!
//! Where a lane serves several routes, slow ones must not take all slots from the others:
//!
//! - A route is *quick* after a dispatch of at most [`QUICK`], while less than a quarter of its running dispatches are
//!   older than that. All other routes share three quarters of the slots: see [`waiting_share`].
//! - A route without a running dispatch may always start one. That shows whether it is quick.
//! - A quick route leaves a sixteenth of the slots free for routes that begin: it may hang at any moment.
//!
//! A lane with one route uses every slot.

mod route;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::breaker::ClaimLimit;
use crate::claim_capacity::ClaimCapacity;

use route::RouteSlots;

/// How long a dispatch of a quick route takes at most. A run of payments may take a second: see `payment/run.rs`.
const QUICK: Duration = Duration::from_secs(2);

/// Counts the running dispatches.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: usize,
    /// Whether several routes share the slots.
    is_shared: bool,
    route_limits: BTreeMap<String, usize>,
    batch: usize,
    /// Every route that had a dispatch.
    routes: HashMap<Arc<str>, RouteSlots>,
    total: usize,
    /// Routes of which the last claim returned as many rows as their limit: more may be due.
    saturated: HashSet<Arc<str>>,
}

impl Slots {
    /// `routes` is the number of routes that the lane serves.
    pub(crate) fn new(slots: usize, routes: usize, route_limits: BTreeMap<String, usize>, batch: usize) -> Self {
        let is_shared = routes > 1 && slots > 1;
        Self { slots, is_shared, route_limits, batch, routes: HashMap::new(), total: 0, saturated: HashSet::new() }
    }

    /// The capacity for a claim now. `held` counts leases without a recorded outcome, running or not. This is
    /// backpressure: while outcomes queue up, further claims would only let leases expire.
    pub(crate) fn capacity<'a>(
        &self,
        held: usize,
        breaker_limits: impl Iterator<Item = (&'a Arc<str>, ClaimLimit)>,
        now: Instant,
    ) -> ClaimCapacity {
        let free = self.free_slots(held);
        let total = free.min(self.batch);
        let mut capacity = ClaimCapacity::new(total, if self.is_shared { 1 } else { total });
        if self.is_shared {
            let waiting_share = self.waiting_share(now);
            let spare = (self.slots / 16).max(1);
            for (route, slots) in &self.routes {
                let limit = match (slots.is_quick(now), slots.running()) {
                    (true, 0) if free <= spare => free,
                    (true, _) => free - spare.min(free),
                    (false, 0) => 1,
                    (false, _) => waiting_share,
                };
                capacity = capacity.with(route, limit);
            }
        }
        for (route, limit) in &self.route_limits {
            let running = self.routes.get(route.as_str()).map_or(0, RouteSlots::running);
            let limit = limit.saturating_sub(running).min(capacity.for_route(route));
            capacity = capacity.with(route, limit);
        }
        for (route, limit) in breaker_limits {
            // A claim for a probe needs a slot of its route.
            let limit = if capacity.for_route(route) == 0 { ClaimLimit::Nothing } else { limit };
            capacity = match limit {
                ClaimLimit::Nothing => capacity.with(route, 0),
                ClaimLimit::One => capacity.with(route, 1),
                ClaimLimit::FirstAttempt => capacity.with_first_attempt(route),
            };
        }
        capacity
    }

    /// How many more dispatches may start.
    pub(crate) fn free_slots(&self, held: usize) -> usize {
        self.slots.saturating_sub(self.total).min((2 * self.slots).saturating_sub(held))
    }

    /// How many more slots each route that is busy and not quick may take: an equal share of what is left of three
    /// quarters of the slots. So they do not take more together, although one claim may return rows of each.
    fn waiting_share(&self, now: Instant) -> usize {
        let waiting: Vec<usize> = self
            .routes
            .values()
            .filter(|slots| slots.running() > 0 && !slots.is_quick(now))
            .map(RouteSlots::running)
            .collect();
        let reserve = (self.slots / 4).max(1);
        let left = self.slots.saturating_sub(reserve).saturating_sub(waiting.iter().sum());
        left / waiting.len().max(1)
    }

    /// Takes a slot; returns how many dispatches of the route run now.
    pub(crate) fn take(&mut self, route: &Arc<str>, now: Instant) -> usize {
        self.total += 1;
        self.routes.entry(Arc::clone(route)).or_default().take(now)
    }

    /// Frees a slot that was taken at this time; returns how many dispatches of the route run now.
    pub(crate) fn free(&mut self, route: &Arc<str>, taken: Instant, now: Instant) -> usize {
        self.total = self.total.saturating_sub(1);
        self.routes.get_mut(route).map_or(0, |slots| slots.free(taken, now))
    }

    /// Records how many rows a claim returned per route, to know which routes may have more rows due.
    pub(crate) fn record_claim(&mut self, capacity: &ClaimCapacity, returned: &HashMap<Arc<str>, usize>) {
        let reached = |route: &str, returned: usize| {
            // A route that may only take a first attempt was asked for one row, so none shows that nothing waits.
            let limit = capacity.most_of(route);
            limit < capacity.total() && returned >= limit
        };
        self.saturated = capacity
            .per_route()
            .map(|(route, _)| route)
            .filter(|route| !returned.contains_key(*route) && reached(route, 0))
            .map(Arc::from)
            .collect();
        self.saturated.extend(
            returned
                .iter()
                .filter(|(route, returned)| reached(route, **returned))
                .map(|(route, _)| Arc::clone(route)),
        );
    }

    /// Whether the next claim may take rows of a route at whose limit the last one stopped. A route that has begun may
    /// take its share at once.
    pub(crate) fn has_capacity_for_saturated(&self, capacity: &ClaimCapacity) -> bool {
        self.is_shared && self.saturated.iter().any(|route| capacity.for_route(route) > 0)
    }

    /// Whether the end of a dispatch of this route is a reason to claim: rows wait for its slot.
    pub(crate) fn is_awaited(&self, route: &str, now: Instant) -> bool {
        let shares_slots = |route: &str| self.routes.get(route).is_none_or(|slots| !slots.is_quick(now));
        self.saturated.contains(route)
            || self.is_shared
                && shares_slots(route)
                && self.saturated.iter().any(|saturated| shares_slots(saturated))
    }
}

#[cfg(test)]
mod tests;
