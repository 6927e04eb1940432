//! A small pool of database sessions for the calls of a lane, one call at a time per session.
//!
//! A session connects when it is first needed, and a session whose call failed is replaced. A call that is dropped
//! half-way is cancelled at the server and its session closed: a claim that no task waits for would lease rows that
//! no task dispatches. Each lane decides which calls share a pool.
//!
//! A pool with a fence makes no call on a server whose epoch has ended: see [`EpochFence`].

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use symphony_db::connect::{self, Session, Target};
use symphony_db::error::{ClaimError, CompleteError, DatabaseError, ErrorDetails};
use tokio::sync::Semaphore;

use crate::epoch::EpochFence;
use crate::lane::LaneError;

/// One or a few sessions to one database, connected on demand.
#[derive(Debug)]
pub struct SessionPool {
    target: Arc<Target>,
    /// One permit per session.
    permits: Semaphore,
    /// Sessions that no call uses; the one used last is used next.
    idle: Mutex<Vec<PooledSession>>,
    fence: Option<Arc<EpochFence>>,
}

/// A session, and the epoch that its server had when it was asked.
#[derive(Debug)]
struct PooledSession {
    session: Arc<Session>,
    epoch: Option<i64>,
}

impl SessionPool {
    /// A pool of one session. It does not connect yet.
    #[must_use]
    pub fn new(target: Arc<Target>) -> Self {
        Self::with_size(1, target)
    }

    /// A pool of several sessions, for calls that need not wait for each other. It does not connect yet.
    #[must_use]
    pub fn with_size(sessions: usize, target: Arc<Target>) -> Self {
        Self { target, permits: Semaphore::new(sessions), idle: Mutex::default(), fence: None }
    }

    /// Makes no call on a server whose epoch has ended. The login needs the role `symphony_executor`.
    pub(crate) fn set_fence(&mut self, fence: &Arc<EpochFence>) {
        self.fence = Some(Arc::clone(fence));
    }

    /// Makes one call, as soon as a session is free.
    ///
    /// # Errors
    ///
    /// Why the call failed, and whether a retry may succeed.
    pub async fn call<T, E: Into<LaneError>>(
        &self,
        request: impl AsyncFnOnce(&Session) -> Result<T, E>,
    ) -> Result<T, LaneError> {
        self.call_checked(async |_: &Session| Ok(()), request).await
    }

    /// Makes one call, after `check` where the session may have a server that was not checked: a new session, and one of a
    /// pooler, whose server may change between two calls.
    ///
    /// # Errors
    ///
    /// Why the check or the call failed, and whether a retry may succeed.
    pub async fn call_checked<T, E: Into<LaneError>>(
        &self,
        check: impl AsyncFnOnce(&Session) -> Result<(), LaneError>,
        request: impl AsyncFnOnce(&Session) -> Result<T, E>,
    ) -> Result<T, LaneError> {
        let _permit = self.permits.acquire().await;
        let idle =
            self.idle().pop().filter(|idle| !idle.session.client().is_closed() && !self.has_ended(idle.epoch));
        let (session, mut epoch, is_new) = match idle {
            Some(PooledSession { session, epoch }) => (session, epoch, false),
            None => {
                let session = self.target.connect_session().await.map_err(|error| not_connected(&error))?;
                (Arc::new(session), None, true)
            }
        };
        let mut call = Call { target: &self.target, session, done: false };
        let result = async {
            if is_new || !call.session.caches_statements() {
                if let Some(fence) = &self.fence {
                    epoch = fence.check(&call.session).await?;
                }
                check(&call.session).await?;
            }
            request(&call.session).await.map_err(Into::into)
        }
        .await;
        call.done = true;
        // Replace the session after an error: its server may no longer be the primary, or its cached plans may be
        // stale.
        if result.is_ok() {
            self.idle().push(PooledSession { session: Arc::clone(&call.session), epoch });
        }
        result
    }

    fn has_ended(&self, epoch: Option<i64>) -> bool {
        self.fence.as_ref().zip(epoch).is_some_and(|(fence, epoch)| fence.has_ended(epoch))
    }

    fn idle(&self) -> MutexGuard<'_, Vec<PooledSession>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call in progress. Dropped before it is done, it is cancelled at the server.
struct Call<'a> {
    target: &'a Arc<Target>,
    session: Arc<Session>,
    done: bool,
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        if self.done {
            return;
        }
        let (target, session) = (Arc::clone(self.target), Arc::clone(&self.session));
        // Outside of a runtime no task waits for the call either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { target.cancel(session.client()).await });
        }
    }
}

/// A failed connection. Safe to log: the message holds no password.
fn not_connected(error: &connect::Error) -> LaneError {
    LaneError::Unavailable(with_cause(error))
}

/// An error with its root cause; the errors in between add nothing.
pub(crate) fn with_cause(error: &dyn Error) -> String {
    let mut cause = error.source();
    while let Some(below) = cause.and_then(Error::source) {
        cause = Some(below);
    }
    // Only the first line: a server adds its hints after it.
    let first_line = |cause: &dyn Error| cause.to_string().lines().next().unwrap_or_default().to_owned();
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {}", first_line(cause)))
}

/// The message and the SQLSTATE of the database, without the statement.
fn describe(details: &ErrorDetails) -> String {
    match details.sqlstate() {
        Some(state) if !details.message().contains(state) => format!("{} [{state}]", details.message()),
        _ => details.message().to_owned(),
    }
}

impl From<DatabaseError> for LaneError {
    fn from(error: DatabaseError) -> Self {
        let message = describe(error.details());
        let transient = match &error {
            DatabaseError::RetryTransaction(_)
            | DatabaseError::LockHeld(_)
            | DatabaseError::ConnectionLost { .. } => true,
            // A standby, a cancelled statement, too many connections or a full disk may pass, or another server may
            // answer. A stale plan or a lost prepared statement needs another session.
            DatabaseError::Other(details) => details.sqlstate().is_some_and(|state| {
                matches!(state, "25006" | "57014" | "0A000" | "26000") || state.starts_with("53")
            }),
            _ => false,
        };
        if transient { Self::Unavailable(message) } else { Self::Refused(message) }
    }
}

impl From<ClaimError> for LaneError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::InvalidArgument(details) => Self::Refused(describe(&details)),
            ClaimError::Database(database) => database.into(),
        }
    }
}

impl From<CompleteError> for LaneError {
    fn from(error: CompleteError) -> Self {
        match error {
            CompleteError::AlreadyTerminal(details)
            | CompleteError::LeaseLost(details)
            | CompleteError::InvalidState(details)
            | CompleteError::NotFound(details)
            | CompleteError::InvalidArgument(details) => Self::Refused(describe(&details)),
            CompleteError::Database(database) => database.into(),
        }
    }
}
