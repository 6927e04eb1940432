//! Exponential backoff with jitter: each failure in a row doubles the wait, up to a limit.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::lane::LaneError;

/// The backoff of one kind of call.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl Backoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// For calls to a database that may be restarting.
    pub(crate) fn of_calls() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(5))
    }

    /// Counts a failure; how long to wait now.
    pub(crate) fn failed(&mut self) -> Duration {
        let wait = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        spread(wait)
    }

    /// Counts a failure by its kind: after a refusal the wait is the longest at once, since a retry would be refused too.
    pub(crate) fn after(&mut self, error: &LaneError) -> Duration {
        let wait = self.failed();
        match error {
            LaneError::Unavailable(_) => wait,
            LaneError::Refused(_) => wait.max(spread(self.longest)),
        }
    }

    /// Counts a success; whether failures preceded it.
    pub(crate) fn worked(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// Whether the last failure was the first in a row: the one to log.
    pub(crate) fn just_began(&self) -> bool {
        self.failures == 1
    }
}

/// Adds up to a quarter of random jitter, so that relayers that failed together do not retry together.
pub(crate) fn spread(wait: Duration) -> Duration {
    wait + share(wait / 4)
}

/// A random part of this time.
pub(crate) fn share(whole: Duration) -> Duration {
    // Hash map keys are random per process: good enough for jitter.
    let chance = u32::try_from(RandomState::new().hash_one(0_u8) % 1024).unwrap_or(0);
    whole * chance / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_start_anew_after_a_success() {
        let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_millis(300));
        for expected in [100, 200, 300, 300] {
            let wait = backoff.failed();
            let expected = Duration::from_millis(expected);
            assert!(wait >= expected && wait <= expected * 5 / 4, "{wait:?}");
        }
        assert!(backoff.worked() && !backoff.worked());
        assert!(backoff.failed() <= Duration::from_millis(125) && backoff.just_began());
    }

    #[test]
    fn what_was_refused_is_left_alone_for_the_longest_time_at_once() {
        let mut backoff = Backoff::of_calls();
        assert!(backoff.after(&LaneError::Refused("no right".to_owned())) >= Duration::from_secs(5));
    }
}
