//! The growth of a counter per second.

use std::collections::VecDeque;
use std::time::Instant;

/// Samples in the moving window.
const WINDOW_SAMPLES: usize = 6;

/// The last samples of a counter, the oldest first.
pub(super) struct Rate(VecDeque<(Instant, i64)>);

impl Rate {
    /// Starts at zero, now.
    pub(super) fn new() -> Self {
        Self(VecDeque::from([(Instant::now(), 0)]))
    }

    /// Adds a sample, and returns the growth per second over the window.
    pub(super) fn update(&mut self, number: i64) -> u64 {
        let now = Instant::now();
        let (then, before) = self.0.front().copied().unwrap_or((now, number));
        self.0.push_back((now, number));
        if self.0.len() > WINDOW_SAMPLES {
            self.0.pop_front();
        }
        let millis = u64::try_from(now.duration_since(then).as_millis()).unwrap_or(u64::MAX).max(1);
        u64::try_from(number - before).unwrap_or_default().saturating_mul(1000) / millis
    }
}
