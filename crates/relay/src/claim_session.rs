//! Keeps the claim session of a lane open, so that its claims need not expire if this process dies.
//!
//! Other relayers release the claims of a process whose claim session has ended, and this one releases theirs. So a process
//! whose session has ended sends no more of what it claimed under it. Where no session can be had, or only through a
//! pooler, claims last as long as their contract says.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use symphony_db::WorkerId;
use symphony_db::claim_session::{ClaimSession, Error};
use symphony_db::connect::Target;
use symphony_db::error::DatabaseError;
use tokio::time::{sleep, timeout};

use crate::session_pool::with_cause;

/// How often the session is used: for a release of what relayers that are gone have claimed.
const BEAT_INTERVAL: Duration = Duration::from_secs(2);
/// How long the server may take to answer.
const BEAT_TIMEOUT: Duration = Duration::from_secs(5);
/// For how long an answer shows that the session has not ended. The server ends the session of a silent host after 25 s: see
/// `open_claim_session`.
const TRUSTED_FOR: Duration = Duration::from_secs(10);
/// How long a claim waits for the session.
const OPEN_TIMEOUT: Duration = Duration::from_secs(3);
/// How long claims go without a session after it could not be opened.
const RETRY_INTERVAL: Duration = Duration::from_secs(30);

/// The claim session of a lane.
#[derive(Debug)]
pub(crate) struct ClaimSessionKeeper {
    target: Arc<Target>,
    worker: WorkerId,
    state: tokio::sync::Mutex<State>,
    released: Arc<AtomicUsize>,
}

#[derive(Debug, Default)]
struct State {
    open: Option<Arc<OpenSession>>,
    not_before: Option<Instant>,
}

/// A session, and whether it may have ended.
#[derive(Debug)]
struct OpenSession {
    session: ClaimSession,
    trust: Trust,
}

/// When a call that was answered began, and whether one failed.
#[derive(Debug)]
struct Trust {
    answered: Mutex<Instant>,
    is_lost: AtomicBool,
}

/// Under which name a claim is made, and whether its rows may still be sent.
#[derive(Clone, Debug)]
pub(crate) struct ClaimHolder {
    name: WorkerId,
    /// `None` for a claim that only time ends.
    session: Option<Arc<OpenSession>>,
}

impl ClaimHolder {
    /// The name of the worker for this claim.
    pub(crate) fn name(&self) -> &WorkerId {
        &self.name
    }

    /// Whether the session of the claim has ended, or may have: then another relayer may hold the row.
    pub(crate) fn may_be_replaced(&self) -> bool {
        self.session.as_ref().is_some_and(|open| open.may_have_ended())
    }
}

impl ClaimSessionKeeper {
    pub(crate) fn new(target: Arc<Target>, worker: WorkerId) -> Self {
        Self { target, worker, state: tokio::sync::Mutex::default(), released: Arc::default() }
    }

    /// The holder of the next claim. Opens a session if there is none.
    pub(crate) async fn holder(&self) -> ClaimHolder {
        let mut state = self.state.lock().await;
        if state.open.as_ref().is_some_and(|open| open.may_have_ended()) {
            state.open = None;
        }
        if state.open.is_none() && state.not_before.is_none_or(|at| at <= Instant::now()) {
            // In case that this call is dropped.
            state.not_before = Some(Instant::now() + RETRY_INTERVAL);
            if let Some(open) = self.open().await {
                state.not_before = None;
                state.open = Some(open);
            }
        }
        match &state.open {
            Some(open) => {
                ClaimHolder { name: open.session.claim_name(&self.worker), session: Some(Arc::clone(open)) }
            }
            None => ClaimHolder { name: self.worker.clone(), session: None },
        }
    }

    /// How many rows were released since the last call.
    pub(crate) fn take_released(&self) -> usize {
        self.released.swap(0, Ordering::AcqRel)
    }

    async fn open(&self) -> Option<Arc<OpenSession>> {
        let began = Instant::now();
        let opened = timeout(OPEN_TIMEOUT, ClaimSession::open(&self.target)).await;
        let session = match opened {
            Ok(Ok(session)) => session,
            Ok(Err(error @ Error::Pooler)) => {
                tracing::info!(%error, "claims of this relayer last their full time if it dies");
                return None;
            }
            Ok(Err(error)) => {
                let error = with_cause(&error);
                tracing::warn!(error, "no claim session: claims last their full time if this relayer dies");
                return None;
            }
            Err(_) => {
                tracing::warn!(after = ?OPEN_TIMEOUT, "opening a claim session timed out");
                return None;
            }
        };
        let open = Arc::new(OpenSession { session, trust: Trust::since(began) });
        // Ends with the lane and its jobs: the task itself keeps the session only during a call.
        let (weak, released) = (Arc::downgrade(&open), Arc::clone(&self.released));
        tokio::spawn(async move {
            while let Some(open) = weak.upgrade() {
                if !open.beat(&released).await {
                    return;
                }
                drop(open);
                sleep(BEAT_INTERVAL).await;
            }
        });
        Some(open)
    }
}

impl OpenSession {
    fn may_have_ended(&self) -> bool {
        self.session.is_closed() || self.trust.has_ended(Instant::now())
    }

    /// Uses the session once; whether it is still trusted.
    async fn beat(&self, released: &AtomicUsize) -> bool {
        let began = Instant::now();
        let error = match timeout(BEAT_TIMEOUT, self.session.release_abandoned_events()).await {
            Ok(Ok(count)) => {
                self.trust.answered(began);
                released.fetch_add(count, Ordering::AcqRel);
                return true;
            }
            // The session is alive; the next call may succeed.
            Ok(Err(DatabaseError::LockHeld(_) | DatabaseError::RetryTransaction(_))) => {
                self.trust.answered(began);
                return true;
            }
            Ok(Err(error)) => with_cause(&error),
            Err(_) => format!("no answer within {BEAT_TIMEOUT:?}"),
        };
        self.trust.lose();
        tracing::warn!(error, "the claim session was lost: what was claimed under it and not sent is released");
        false
    }
}

impl Trust {
    fn since(began: Instant) -> Self {
        Self { answered: Mutex::new(began), is_lost: AtomicBool::new(false) }
    }

    /// The server has answered a call that began then.
    fn answered(&self, began: Instant) {
        *self.answered.lock().unwrap_or_else(PoisonError::into_inner) = began;
    }

    fn lose(&self) {
        self.is_lost.store(true, Ordering::Release);
    }

    fn has_ended(&self, now: Instant) -> bool {
        let answered = *self.answered.lock().unwrap_or_else(PoisonError::into_inner);
        self.is_lost.load(Ordering::Acquire) || now.saturating_duration_since(answered) >= TRUSTED_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_is_trusted_for_ten_seconds_after_an_answer_and_not_after_a_failure() {
        let began = Instant::now();
        let trust = Trust::since(began);
        assert!(!trust.has_ended(began + TRUSTED_FOR - Duration::from_millis(1)));
        assert!(trust.has_ended(began + TRUSTED_FOR));
        trust.answered(began + TRUSTED_FOR);
        assert!(!trust.has_ended(began + TRUSTED_FOR));
        trust.lose();
        assert!(trust.has_ended(began + TRUSTED_FOR));
    }
}
