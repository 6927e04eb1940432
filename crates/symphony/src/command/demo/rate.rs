//! How fast a number grows.

use std::collections::VecDeque;
use std::time::Instant;

/// Rates are those of so many counts, so that they do not jump.
const REMEMBERED: usize = 6;

/// The last few counts of a number, the oldest first.
pub(super) struct Rate(VecDeque<(Instant, i64)>);

impl Rate {
    /// It begins at zero, now.
    pub(super) fn new() -> Self {
        Self(VecDeque::from([(Instant::now(), 0)]))
    }

    /// It is so much now: how much it grows in a second.
    pub(super) fn of(&mut self, number: i64) -> u64 {
        let now = Instant::now();
        let (then, before) = self.0.front().copied().unwrap_or((now, number));
        self.0.push_back((now, number));
        if self.0.len() > REMEMBERED {
            self.0.pop_front();
        }
        let millis = u64::try_from(now.duration_since(then).as_millis()).unwrap_or(u64::MAX).max(1);
        u64::try_from(number - before).unwrap_or_default().saturating_mul(1000) / millis
    }
}
