//! Waits until something is so, or until it is too late, which is an error that says what was waited for.
//!
//! This is the only place where a test may let time pass, and it never decides anything by it: a condition that holds
//! at once costs nothing, and the bound is for failures alone, so it may be generous.

use std::fmt;
use std::time::Duration;

/// How long a test waits for what takes milliseconds on a quiet machine.
pub const BOUND: Duration = Duration::from_secs(60);
const TICK: Duration = Duration::from_millis(10);

/// What was waited for did not come about.
#[derive(thiserror::Error)]
#[error("waited {bound:?} in vain until {what}")]
pub struct TooLate {
    /// What was waited for, as it completes "until …".
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

/// Asks over and over until the condition holds. A question that is never answered counts against the bound as well.
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

/// Asks over and over until there is an answer, and returns it.
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
            tokio::time::sleep(TICK).await;
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
        until("it was asked three times", BOUND, third).await.unwrap();
        assert_eq!(asked, 3);
    }

    #[tokio::test]
    async fn a_condition_that_holds_is_seen_even_without_time() {
        until("what is so is so", Duration::ZERO, async || true).await.unwrap();
    }

    #[tokio::test]
    async fn a_wait_in_vain_says_what_for() {
        let bound = Duration::from_millis(30);
        let refusal = until("the cows come home", bound, async || false).await.unwrap_err();
        assert_eq!(format!("{refusal:?}"), "waited 30ms in vain until the cows come home");
    }

    #[tokio::test]
    async fn a_question_without_an_answer_does_not_outlast_the_bound() {
        let bound = Duration::from_millis(30);
        until_some::<()>("it answers", bound, async || std::future::pending().await).await.unwrap_err();
    }
}
