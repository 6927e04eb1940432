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
#[error("timed out after {bound:?} waiting until {what}")]
pub struct TooLate {
    /// The condition, as it completes "until …".
    pub what: String,
    /// For how long.
    pub bound: Duration,
}

/// Tests unwrap, and what they print is this.
impl fmt::Debug for TooLate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Polls until the condition holds. A poll that never returns counts against the timeout too.
///
/// # Errors
/// When the bound has passed first.
pub async fn until(
    what: impl Into<String>,
    bound: Duration,
    mut condition: impl AsyncFnMut() -> bool,
) -> Result<(), TooLate> {
    until_some(what, bound, async || condition().await.then_some(())).await
}

/// Polls until there is a value, and returns it.
///
/// # Errors
/// When the bound has passed first.
pub async fn until_some<T>(
    what: impl Into<String>,
    bound: Duration,
    mut question: impl AsyncFnMut() -> Option<T>,
) -> Result<T, TooLate> {
    let asked = async {
        loop {
            if let Some(answer) = question().await {
                return answer;
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    };
    tokio::time::timeout(bound, asked).await.map_err(|_| TooLate { what: what.into(), bound })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_condition_that_comes_to_hold_ends_the_wait() {
        let mut asked = 0;
        let third = async || {
            asked += 1;
            asked == 3
        };
        until("it was asked three times", DEFAULT_TIMEOUT, third).await.unwrap();
        assert_eq!(asked, 3);
    }

    #[tokio::test]
    async fn a_condition_that_holds_is_seen_even_without_time() {
        until("what is so is so", Duration::ZERO, async || true).await.unwrap();
    }

    #[tokio::test]
    async fn a_timeout_names_the_condition() {
        let bound = Duration::from_millis(30);
        let refusal = until("it holds", bound, async || false).await.unwrap_err();
        assert_eq!(format!("{refusal:?}"), "timed out after 30ms waiting until it holds");
    }

    #[tokio::test]
    async fn a_poll_that_never_returns_times_out() {
        let bound = Duration::from_millis(30);
        until_some::<()>("it answers", bound, async || std::future::pending().await).await.unwrap_err();
    }
}
