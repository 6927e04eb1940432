//! The console's own logins: one that reads and one that acts, each with few sessions and little time.
//!
//! A console must never take from the relayer what the relayer needs. So it has sessions of its own, as many as are written here,
//! statements that end after two seconds, and no queue that grows: who finds no session free in time is told to come back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_outbox::connect::Target;
use symphony_outbox::error::{Fault, OperateError};
use symphony_outbox::rights;
use symphony_relay::lane::LaneError;
use symphony_relay::session_pool::SessionPool;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::Client;

use super::problem::Problem;
use crate::failure::Failure;

/// Sessions that read.
const READERS: usize = 4;
/// How long to wait for one that is free.
const QUEUE: Duration = Duration::from_secs(2);
/// How long a whole call may take: somebody waits for it.
const PATIENCE: Duration = Duration::from_secs(8);
/// What a session that reads may do, and for how long. It goes by indexes: a table that was never analysed must not look small to it.
const READING: &str = "-c statement_timeout=2s -c lock_timeout=1s -c default_transaction_read_only=on \
                       -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off";
/// An action may wait for a worker to finish with a row.
const ACTING: &str = "-c statement_timeout=6s -c lock_timeout=4s";

/// Both logins.
pub(crate) struct Database {
    readers: Lines,
    /// None where the console may only look.
    actor: Option<Lines>,
}

impl Database {
    pub(crate) fn new(read: &Target, act: Option<&Target>) -> Self {
        Self {
            readers: Lines::new(&read.with_options(READING), READERS),
            actor: act.map(|act| Lines::new(&act.with_options(ACTING), 1)),
        }
    }

    /// Whether anything can be done here.
    pub(crate) fn may_act(&self) -> bool {
        self.actor.is_some()
    }

    /// Reads something.
    pub(crate) async fn read<T>(&self, ask: impl AsyncFnOnce(&Client) -> Result<T, Fault>) -> Result<T, Problem> {
        Ok(self.readers.call(ask).await??)
    }

    /// Does something.
    pub(crate) async fn act<T>(
        &self,
        ask: impl AsyncFnOnce(&Client) -> Result<T, OperateError>,
    ) -> Result<T, Problem> {
        let Some(actor) = &self.actor else {
            return Err(Problem::new(
                axum::http::StatusCode::FORBIDDEN,
                "this console may only look: console.act_url is not set",
            ));
        };
        Ok(actor.call(ask).await??)
    }
}

/// Sessions of one login, each for one call at a time.
struct Lines {
    free: Mutex<Vec<Arc<SessionPool>>>,
    permits: Semaphore,
}

impl Lines {
    fn new(target: &Target, count: usize) -> Self {
        let target = Arc::new(target.clone());
        let free = (0..count).map(|_| Arc::new(SessionPool::new(Arc::clone(&target)))).collect();
        Self { free: Mutex::new(free), permits: Semaphore::new(count) }
    }

    /// What the call said, whatever it was; a problem where it could not be made.
    async fn call<T, E>(&self, ask: impl AsyncFnOnce(&Client) -> Result<T, E>) -> Result<Result<T, E>, Problem> {
        let permit = timeout(QUEUE, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(Problem::busy("the console is busy with other requests; try again in a moment"));
        };
        let line = Lent::of(&self.free)?;
        let answer =
            timeout(PATIENCE, line.line.call(async |session| Ok::<_, LaneError>(ask(session.client()).await)))
                .await;
        match answer {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the console did not reach the database");
                Err(Problem::busy("the database was not reached; the log of this process says more"))
            }
            Err(_) => Err(Problem::busy("the database did not answer in time")),
        }
    }
}

/// A line in use, which goes back when it is done with.
struct Lent<'a> {
    free: &'a Mutex<Vec<Arc<SessionPool>>>,
    line: Arc<SessionPool>,
}

impl<'a> Lent<'a> {
    fn of(free: &'a Mutex<Vec<Arc<SessionPool>>>) -> Result<Self, Problem> {
        let line = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        let line = line.ok_or_else(|| Problem::busy("the console is busy with other requests"))?;
        Ok(Self { free, line })
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&self.line));
    }
}

/// Refuses a login that lacks the one role that it needs, or that may do more than the roles that it may hold.
pub(crate) async fn check(setting: &str, target: &Target, needs: &str, may_hold: &[&str]) -> Result<(), Failure> {
    let client = crate::database::connect(target).await?;
    let missing = rights::missing_roles(&client, &[needs]).await?;
    if !missing.is_empty() {
        return Err(Failure::no(format!("{setting}: the login lacks the role {needs}"))
            .hint(format!("let a DBA run: grant {needs} to that login")));
    }
    let excess = rights::excess(&client, may_hold).await?;
    if excess.is_empty() {
        return Ok(());
    }
    Err(Failure::no(format!("{setting}: the login may do more than it must: {}", excess.join("; ")))
        .hint(format!("use a login of its own that holds {needs} and nothing else of Symphony")))
}
