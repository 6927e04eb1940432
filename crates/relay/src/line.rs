//! Sessions with the database that a lane's calls go through, one at a time through each.
//!
//! A session connects when it is first needed and again after any trouble. A call that is given up half-way must not go on at
//! the server: a claim that nobody waits for would lease rows that nobody carries. So a call that is dropped
//! is cancelled there, and its session with it. Which calls share a line, and what they ask, is the lane's business.

use std::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use symphony_outbox::connect::{self, Session, Target};
use symphony_outbox::error::{CompleteError, Fault, LeaseError, Report, event, metadata};
use tokio::sync::Semaphore;

use crate::lane::Trouble;

/// A session or a few, each made when it is needed.
#[derive(Debug)]
pub struct Line {
    target: Arc<Target>,
    /// One for each call that may be under way.
    turns: Semaphore,
    /// Sessions that no call uses. The one that was used last is used next.
    idle: Mutex<Vec<Arc<Session>>>,
}

impl Line {
    /// A line to this database, of one session. Nothing is connected yet.
    #[must_use]
    pub fn new(target: Arc<Target>) -> Self {
        Self::of(1, target)
    }

    /// A line of so many sessions, for calls that need not wait for each other.
    #[must_use]
    pub fn of(sessions: usize, target: Arc<Target>) -> Self {
        Self { target, turns: Semaphore::new(sessions), idle: Mutex::default() }
    }

    /// Makes one call. Whoever comes while every session is taken waits.
    ///
    /// # Errors
    ///
    /// What the call met, and whether it is worth another try.
    pub async fn call<T, E: Into<Trouble>>(
        &self,
        ask: impl AsyncFnOnce(&Session) -> Result<T, E>,
    ) -> Result<T, Trouble> {
        let _turn = self.turns.acquire().await;
        let idle = self.idle().pop().filter(|session| !session.client().is_closed());
        let session = match idle {
            Some(session) => session,
            None => Arc::new(self.target.connect_to_ask().await.map_err(|error| not_connected(&error))?),
        };
        let mut call = Call { target: &self.target, session, done: false };
        let answer = ask(&call.session).await.map_err(Into::into);
        call.done = true;
        // A session that met trouble may be on a server that is no longer the one to ask, or remember what has changed there.
        if answer.is_ok() {
            self.idle().push(Arc::clone(&call.session));
        }
        answer
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Arc<Session>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A call under way. Dropped before it is done, it is cancelled at the server.
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
        // Outside of a runtime there is nobody left to wait for it either.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { target.cancel(session.client()).await });
        }
    }
}

/// What the program says when it could not connect: safe to log, as no address holds a password there.
fn not_connected(error: &connect::Error) -> Trouble {
    Trouble::Away(with_cause(error))
}

/// An error and what lies at its bottom: what is in between only says that something happened.
pub(crate) fn with_cause(error: &dyn Error) -> String {
    let mut cause = error.source();
    while let Some(below) = cause.and_then(Error::source) {
        cause = Some(below);
    }
    // The first line: a server adds its hints behind it.
    let words = |cause: &dyn Error| cause.to_string().lines().next().unwrap_or_default().to_owned();
    cause.map_or_else(|| error.to_string(), |cause| format!("{error}: {}", words(cause)))
}

/// What the database said, by its words and its SQLSTATE: never what it was asked.
fn in_words(report: &Report) -> String {
    match report.sqlstate() {
        Some(state) => format!("{} [{state}]", report.message()),
        None => report.message().to_owned(),
    }
}

impl From<Fault> for Trouble {
    fn from(fault: Fault) -> Self {
        let words = in_words(fault.report());
        let passes = match &fault {
            Fault::RetryTransaction(_) | Fault::LockHeld(_) | Fault::ConnectionLost { .. } => true,
            // A standby, a cancelled statement, too many connections, a full disk: another moment, or another server. What the session
            // remembers is no longer what is there, or not there any more: another session.
            Fault::Other(report) => report.sqlstate().is_some_and(|state| {
                matches!(state, "25006" | "57014" | "0A000" | "26000") || state.starts_with("53")
            }),
            Fault::NotReadCommitted(_)
            | Fault::MissingRole { .. }
            | Fault::NotInstalled(_)
            | Fault::AppendOnly(_)
            | Fault::TerminalBackstop(_) => false,
        };
        if passes { Self::Away(words) } else { Self::Refused(words) }
    }
}

impl From<LeaseError> for Trouble {
    fn from(error: LeaseError) -> Self {
        match error {
            LeaseError::InvalidArgument(report) => Self::Refused(in_words(&report)),
            LeaseError::Fault(fault) => fault.into(),
        }
    }
}

impl From<CompleteError> for Trouble {
    fn from(error: CompleteError) -> Self {
        match error {
            CompleteError::AlreadyTerminal(report)
            | CompleteError::LeaseLost(report)
            | CompleteError::InvalidState(report)
            | CompleteError::InvalidArgument(report) => Self::Refused(in_words(&report)),
            CompleteError::Fault(fault) => fault.into(),
        }
    }
}

impl From<event::ClaimError> for Trouble {
    fn from(error: event::ClaimError) -> Self {
        match error {
            event::ClaimError::InvalidArgument(report) => Self::Refused(in_words(&report)),
            event::ClaimError::Fault(fault) => fault.into(),
        }
    }
}

impl From<event::CompleteError> for Trouble {
    fn from(error: event::CompleteError) -> Self {
        match error {
            event::CompleteError::ClaimLost(report) | event::CompleteError::InvalidArgument(report) => {
                Self::Refused(in_words(&report))
            }
            event::CompleteError::Fault(fault) => fault.into(),
        }
    }
}

impl From<metadata::ClaimError> for Trouble {
    fn from(error: metadata::ClaimError) -> Self {
        match error {
            metadata::ClaimError::InvalidArgument(report) => Self::Refused(in_words(&report)),
            metadata::ClaimError::Fault(fault) => fault.into(),
        }
    }
}

impl From<metadata::MoveError> for Trouble {
    fn from(error: metadata::MoveError) -> Self {
        match error {
            metadata::MoveError::Missing(report)
            | metadata::MoveError::AlreadyTerminal(report)
            | metadata::MoveError::WrongStatus(report)
            | metadata::MoveError::ClaimLost(report)
            | metadata::MoveError::InvalidArgument(report) => Self::Refused(in_words(&report)),
            metadata::MoveError::Fault(fault) => fault.into(),
        }
    }
}
