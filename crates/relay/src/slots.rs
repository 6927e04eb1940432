//! Concurrency limits: how many dispatches run in this process, in total and per route.
//!
//! A claim never asks for more rows than there are free slots: a row that is leased and cannot start is blocked for
//! every other worker.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::claim_capacity::ClaimCapacity;

/// Counts the running dispatches.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: usize,
    route_limits: BTreeMap<String, usize>,
    batch: usize,
    running: HashMap<Arc<str>, usize>,
    total: usize,
    /// Routes of which the last claim returned as many rows as their limit: more may be due.
    saturated: HashSet<String>,
}

impl Slots {
    pub(crate) fn new(slots: usize, route_limits: BTreeMap<String, usize>, batch: usize) -> Self {
        Self { slots, route_limits, batch, running: HashMap::new(), total: 0, saturated: HashSet::new() }
    }

    /// The capacity for a claim now. `held` counts leases without a recorded outcome, running or not. This is
    /// backpressure: while outcomes queue up, further claims would only let leases expire.
    pub(crate) fn capacity<'a>(
        &self,
        held: usize,
        breaker_limits: impl Iterator<Item = (&'a Arc<str>, usize)>,
    ) -> ClaimCapacity {
        let free = self.slots.saturating_sub(self.total).min((2 * self.slots).saturating_sub(held));
        let total = free.min(self.batch);
        let mut capacity = ClaimCapacity::new(total, total);
        for (route, limit) in &self.route_limits {
            let running = self.running.get(route.as_str()).copied().unwrap_or(0);
            capacity = capacity.with(route, limit.saturating_sub(running));
        }
        for (route, limit) in breaker_limits {
            let limit = limit.min(capacity.for_route(route));
            capacity = capacity.with(route, limit);
        }
        capacity
    }

    /// Takes a slot; returns how many dispatches of the route run now.
    pub(crate) fn take(&mut self, route: &Arc<str>) -> usize {
        self.total += 1;
        let running = self.running.entry(Arc::clone(route)).or_insert(0);
        *running += 1;
        *running
    }

    /// Frees a slot; returns how many dispatches of the route run now.
    pub(crate) fn free(&mut self, route: &Arc<str>) -> usize {
        self.total = self.total.saturating_sub(1);
        let Some(running) = self.running.get_mut(route) else { return 0 };
        *running = running.saturating_sub(1);
        let left = *running;
        if left == 0 {
            self.running.remove(route);
        }
        left
    }

    /// Records how many rows a claim returned per route, to know which routes may have more rows due.
    pub(crate) fn record_claim(&mut self, capacity: &ClaimCapacity, returned: &HashMap<Arc<str>, usize>) {
        let returned = |route: &str| returned.get(route).copied().unwrap_or(0);
        self.saturated = capacity
            .per_route()
            .filter(|(route, limit)| *limit < capacity.total() && returned(route) >= *limit)
            .map(|(route, _)| route.to_owned())
            .collect();
    }

    /// Whether rows of this route may be due and wait for a free slot.
    pub(crate) fn is_saturated(&self, route: &str) -> bool {
        self.saturated.contains(route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_is_the_free_slots_within_the_batch_and_the_limits_of_routes_and_breakers() {
        let mut slots = Slots::new(6, BTreeMap::from([("wire".to_owned(), 2)]), 5);
        let (wire, ach): (Arc<str>, Arc<str>) = (Arc::from("wire"), Arc::from("ach"));
        let none = || std::iter::empty();
        assert_eq!(slots.capacity(0, none()), ClaimCapacity::new(5, 5).with("wire", 2));
        slots.take(&wire);
        slots.take(&ach);
        assert_eq!(slots.capacity(2, none()), ClaimCapacity::new(4, 4).with("wire", 1));
        assert_eq!(slots.capacity(2, [(&ach, 0)].into_iter()).for_route("ach"), 0);
        assert_eq!(slots.capacity(11, none()).total(), 1, "unrecorded outcomes count");
        assert_eq!((slots.free(&wire), slots.capacity(1, none()).for_route("wire")), (0, 2));
    }

    #[test]
    fn a_route_is_saturated_when_a_claim_reached_its_limit() {
        let mut slots = Slots::new(6, BTreeMap::from([("wire".to_owned(), 2)]), 5);
        let capacity = slots.capacity(0, std::iter::empty());
        slots.record_claim(&capacity, &HashMap::from([(Arc::from("wire"), 2)]));
        assert!(slots.is_saturated("wire") && !slots.is_saturated("ach"));
        slots.record_claim(&capacity, &HashMap::from([(Arc::from("wire"), 1)]));
        assert!(!slots.is_saturated("wire"));
    }
}
