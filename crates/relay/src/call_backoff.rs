//! Backoff of the relayer's own database calls, exponential with jitter: each failure in a row doubles the wait.
//!
//! It delays a claim, completion, renewal, release, repair or LISTEN that failed. The backoff of an outbox row is
//! computed in SQL, by `schema/functions/payment/record_attempts.sql`.

use std::hash::{BuildHasher, RandomState};
use std::time::Duration;

use crate::lane::LaneError;
use crate::simulation;

/// The backoff of one kind of database call.
#[derive(Clone, Debug)]
pub(crate) struct CallBackoff {
    first: Duration,
    longest: Duration,
    failures: u32,
}

impl CallBackoff {
    pub(crate) fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, failures: 0 }
    }

    /// From 100 ms to 5 s: a database that restarts is back within seconds.
    pub(crate) fn with_defaults() -> Self {
        Self::new(Duration::from_millis(100), Duration::from_secs(5))
    }

    /// Counts a failure and returns the wait before the retry.
    pub(crate) fn failed(&mut self) -> Duration {
        let wait = self.first.saturating_mul(1 << self.failures.min(20)).min(self.longest);
        self.failures = self.failures.saturating_add(1);
        with_jitter(wait)
    }

    /// Counts a failure and returns the wait before the retry. After a refusal it is the longest at once, since a
    /// retry would be refused too.
    pub(crate) fn failed_with(&mut self, error: &LaneError) -> Duration {
        let wait = self.failed();
        match error {
            LaneError::Unavailable(_) => wait,
            LaneError::Refused(_) => wait.max(with_jitter(self.longest)),
        }
    }

    /// Resets the backoff; whether failures preceded this success.
    pub(crate) fn succeeded(&mut self) -> bool {
        std::mem::take(&mut self.failures) > 0
    }

    /// Whether the last failure was the first in a row: the one to log.
    pub(crate) fn is_first_failure(&self) -> bool {
        self.failures == 1
    }
}

/// Adds up to a quarter of random jitter, so that relayers that failed together do not retry together.
pub(crate) fn with_jitter(wait: Duration) -> Duration {
    wait + random_below(wait / 4)
}

/// A random duration below this one.
pub(crate) fn random_below(whole: Duration) -> Duration {
    // The hasher's random keys are good enough for jitter.
    let random = || u32::try_from(RandomState::new().hash_one(0_u8) % 1024).unwrap_or(0);
    let fraction = simulation::jitter().unwrap_or_else(random);
    whole * fraction / 1024
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_reset_after_a_success() {
        let mut backoff = CallBackoff::new(Duration::from_millis(100), Duration::from_millis(300));
        for expected in [100, 200, 300, 300] {
            let wait = backoff.failed();
            let expected = Duration::from_millis(expected);
            assert!(wait >= expected && wait <= expected * 5 / 4, "{wait:?}");
        }
        assert!(backoff.succeeded() && !backoff.succeeded());
        assert!(backoff.failed() <= Duration::from_millis(125) && backoff.is_first_failure());
    }

    #[test]
    fn a_refused_call_waits_the_longest_time_at_once() {
        let mut backoff = CallBackoff::with_defaults();
        assert!(
            backoff.failed_with(&LaneError::Refused("permission denied".to_owned())) >= Duration::from_secs(5)
        );
    }
}
