//! Waits for a condition. A timeout is an error that names the condition.
//!
//! This is the only place where a test may sleep. A condition that holds at once costs nothing, so the timeout may be
//! generous.

use std::fmt;
use std::time::Duration;

/// The timeout for conditions that take milliseconds on an idle machine.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(10);

/// The condition did not hold in time.
#[derive(thiserror::Error)]
#[error("timed out after {timeout:?} waiting until {what}")]
pub struct TimedOut {
    /// The condition, as it completes "until …".
    pub what: String,
    /// The timeout.
    pub timeout: Duration,
}

/// `unwrap` prints this.
impl fmt::Debug for TimedOut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Polls until the condition holds. A poll that never returns counts against the timeout too.
///
/// # Errors
/// When the timeout passes first.
pub async fn until(
    what: impl Into<String>,
    timeout: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) -> Result<(), TimedOut> {
    until_some(what, timeout, async || condition().await.then_some(())).await
}

/// Polls until there is a value, and returns it.
///
/// # Errors
/// When the timeout passes first.
pub async fn until_some<T>(
    what: impl Into<String>,
    timeout: Duration,
    mut poll: impl AsyncFnMut() -> Option<T>,
) -> Result<T, TimedOut> {
    let polling = async {
        loop {
            if let Some(value) = poll().await {
                return value;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(timeout, polling).await.map_err(|_| TimedOut { what: what.into(), timeout })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn polling_ends_when_the_condition_holds() {
        let mut polls = 0;
        let third = async || {
            polls += 1;
            polls == 3
        };
        until("it was polled three times", DEFAULT_TIMEOUT, third).await.unwrap();
        assert_eq!(polls, 3);
    }

    #[tokio::test]
    async fn a_condition_that_holds_at_once_is_seen_even_with_a_timeout_of_zero() {
        until("true", Duration::ZERO, async || true).await.unwrap();
    }

    #[tokio::test]
    async fn a_timeout_names_the_condition() {
        let timeout = Duration::from_millis(30);
        let refusal = until("it holds", timeout, async || false).await.unwrap_err();
        assert_eq!(format!("{refusal:?}"), "timed out after 30ms waiting until it holds");
    }

    #[tokio::test]
    async fn a_poll_that_never_returns_times_out() {
        let timeout = Duration::from_millis(30);
        until_some::<()>("it returns", timeout, async || std::future::pending().await).await.unwrap_err();
    }
}
