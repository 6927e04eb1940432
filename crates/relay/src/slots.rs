//! Who may run: so many dispatches in this process, and of some routes fewer.
//!
//! A claim asks for what is free and never for more, because a claimed row that cannot start is a row that nobody else
//! can start either.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use crate::rooms::Rooms;

/// The dispatches that run, counted.
#[derive(Debug)]
pub(crate) struct Slots {
    slots: usize,
    caps: BTreeMap<String, usize>,
    batch: usize,
    running: HashMap<Arc<str>, usize>,
    total: usize,
    /// Routes of which the last claim could have brought more, had there been room.
    tight: HashSet<String>,
}

impl Slots {
    pub(crate) fn new(slots: usize, caps: BTreeMap<String, usize>, batch: usize) -> Self {
        Self { slots, caps, batch, running: HashMap::new(), total: 0, tight: HashSet::new() }
    }

    /// The room for a claim now. `held` counts leases whose outcome is not recorded yet, running or not: when outcomes
    /// pile up, claiming more would only let leases expire.
    pub(crate) fn rooms<'a>(&self, held: usize, limits: impl Iterator<Item = (&'a Arc<str>, usize)>) -> Rooms {
        let free = self.slots.saturating_sub(self.total).min((2 * self.slots).saturating_sub(held));
        let total = free.min(self.batch);
        let mut rooms = Rooms::new(total, total);
        for (route, cap) in &self.caps {
            let running = self.running.get(route.as_str()).copied().unwrap_or(0);
            rooms = rooms.with(route, cap.saturating_sub(running));
        }
        for (route, limit) in limits {
            let room = limit.min(rooms.of(route));
            rooms = rooms.with(route, room);
        }
        rooms
    }

    /// Takes a slot; how many run on that route now.
    pub(crate) fn take(&mut self, route: &Arc<str>) -> usize {
        self.total += 1;
        let running = self.running.entry(Arc::clone(route)).or_insert(0);
        *running += 1;
        *running
    }

    /// Gives a slot back; how many run on that route now.
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

    /// Takes note of what a claim brought, to know which routes it left rows of.
    pub(crate) fn note(&mut self, rooms: &Rooms, brought: &HashMap<Arc<str>, usize>) {
        let got = |route: &str| brought.get(route).copied().unwrap_or(0);
        self.tight = rooms
            .named()
            .filter(|(route, room)| *room < rooms.total() && got(route) >= *room)
            .map(|(route, _)| route.to_owned())
            .collect();
    }

    /// Whether rows of this route may be waiting for a slot of it.
    pub(crate) fn is_tight(&self, route: &str) -> bool {
        self.tight.contains(route)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_what_is_free_within_the_batch_the_caps_and_the_limits() {
        let mut slots = Slots::new(6, BTreeMap::from([("wire".to_owned(), 2)]), 5);
        let (wire, ach): (Arc<str>, Arc<str>) = (Arc::from("wire"), Arc::from("ach"));
        let none = || std::iter::empty();
        assert_eq!(slots.rooms(0, none()), Rooms::new(5, 5).with("wire", 2));
        slots.take(&wire);
        slots.take(&ach);
        assert_eq!(slots.rooms(2, none()), Rooms::new(4, 4).with("wire", 1));
        assert_eq!(slots.rooms(2, [(&ach, 0)].into_iter()).of("ach"), 0);
        assert_eq!(slots.rooms(11, none()).total(), 1, "outcomes pile up");
        assert_eq!((slots.free(&wire), slots.rooms(1, none()).of("wire")), (0, 2));
    }

    #[test]
    fn a_route_is_tight_when_a_claim_filled_its_room() {
        let mut slots = Slots::new(6, BTreeMap::from([("wire".to_owned(), 2)]), 5);
        let rooms = slots.rooms(0, std::iter::empty());
        slots.note(&rooms, &HashMap::from([(Arc::from("wire"), 2)]));
        assert!(slots.is_tight("wire") && !slots.is_tight("ach"));
        slots.note(&rooms, &HashMap::from([(Arc::from("wire"), 1)]));
        assert!(!slots.is_tight("wire"));
    }
}
