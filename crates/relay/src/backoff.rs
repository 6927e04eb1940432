//! How long to leave something alone that fails: longer each time, up to a limit, and never all copies in step.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::lane::Trouble;

/// The waits after failures in a row.
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

    /// Counts a failure by its kind: what was refused will be refused again, so there is no hurry.
    pub(crate) fn after(&mut self, trouble: &Trouble) -> Duration {
        let wait = self.failed();
        match trouble {
            Trouble::Away(_) => wait,
            Trouble::Refused(_) => wait.max(spread(self.longest)),
        }
    }

    /// Ends the row of failures; whether there was one.
    pub(crate) fn worked(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// Whether the failure that was counted last was the first in its row: the one to tell people about.
    pub(crate) fn just_began(&self) -> bool {
        self.failures == 1
    }
}

/// Up to a quarter longer, by chance, so that a fleet that failed together does not come back together.
pub(crate) fn spread(wait: Duration) -> Duration {
    wait + share(wait / 4)
}

/// A part of this time, by chance.
pub(crate) fn share(whole: Duration) -> Duration {
    // Keys of hash maps are random per process: good enough to keep a fleet out of step.
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
        assert!(backoff.after(&Trouble::Refused("no right".to_owned())) >= Duration::from_secs(5));
    }
}
