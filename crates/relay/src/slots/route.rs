//! The slots of one route, and whether it is quick.

use std::collections::BTreeMap;

use tokio::time::Instant;

use super::QUICK;

/// The running dispatches of one route.
#[derive(Debug, Default)]
pub(super) struct RouteSlots {
    /// How many there are by the time at which they started.
    started: BTreeMap<Instant, usize>,
    running: usize,
    /// Whether the last dispatch that ended was quick.
    was_quick: bool,
}

impl RouteSlots {
    pub(super) fn running(&self) -> usize {
        self.running
    }

    pub(super) fn is_quick(&self, now: Instant) -> bool {
        let Some(limit) = now.checked_sub(QUICK) else { return self.was_quick };
        let old: usize = self.started.range(..limit).map(|(_, count)| count).sum();
        self.was_quick && old * 4 <= self.running
    }

    /// Returns how many run now.
    pub(super) fn take(&mut self, now: Instant) -> usize {
        *self.started.entry(now).or_insert(0) += 1;
        self.running += 1;
        self.running
    }

    /// Returns how many run now.
    pub(super) fn free(&mut self, taken: Instant, now: Instant) -> usize {
        if let Some(count) = self.started.get_mut(&taken) {
            *count -= 1;
            if *count == 0 {
                self.started.remove(&taken);
            }
            self.running -= 1;
        }
        self.was_quick = now.saturating_duration_since(taken) <= QUICK;
        self.running
    }
}
