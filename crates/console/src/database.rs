//! Database access of the console: one pool that reads and one that acts, each with few sessions and short timeouts.
//!
//! The console must not starve the relayer. It has its own logins, a fixed number of sessions, and statements that end
//! after two seconds. Requests do not queue: one that finds no free session in time gets 503 and must be sent again.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use symphony_db::connect::Target;
use symphony_db::error::{DatabaseError, OperateError};
use symphony_db::{roles, schema};
use symphony_relay::lane::LaneError;
use symphony_relay::session_pool::SessionPool;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use tokio_postgres::Client;

use super::problem::Problem;
use crate::Error;

/// Sessions of the login that reads.
const READ_SESSIONS: usize = 4;
/// How long a request waits for a free session.
const SESSION_WAIT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long one call may take, all of its statements included.
const CALL_TIMEOUT: Duration = Duration::from_secs(8);
/// PostgreSQL settings of a reading session. Index scans only: a table that was never analysed must not look small to
/// the planner.
const READ_OPTIONS: &str = "-c statement_timeout=2s -c lock_timeout=1s -c default_transaction_read_only=on \
                            -c enable_seqscan=off -c enable_bitmapscan=off -c jit=off";
/// PostgreSQL settings of the acting session. An action may wait until a worker has finished with a row.
const ACT_OPTIONS: &str = "-c statement_timeout=6s -c lock_timeout=4s";

/// The pools of both logins.
pub(crate) struct Database {
    readers: LoginPool,
    /// None if the console is read-only.
    actor: Option<LoginPool>,
}

impl Database {
    pub(crate) fn new(read: &Target, act: Option<&Target>) -> Self {
        Self {
            readers: LoginPool::new(&read.with_options(READ_OPTIONS), READ_SESSIONS),
            actor: act.map(|act| LoginPool::new(&act.with_options(ACT_OPTIONS), 1)),
        }
    }

    /// Whether this console has a login that acts.
    pub(crate) fn may_act(&self) -> bool {
        self.actor.is_some()
    }

    /// Runs a query as the login that reads.
    pub(crate) async fn read<T>(
        &self,
        query: impl AsyncFnOnce(&Client) -> Result<T, DatabaseError>,
    ) -> Result<T, Problem> {
        Ok(self.readers.call(query).await??)
    }

    /// Runs an operator's action as the login that acts.
    pub(crate) async fn act<T>(
        &self,
        action: impl AsyncFnOnce(&Client) -> Result<T, OperateError>,
    ) -> Result<T, Problem> {
        let Some(actor) = &self.actor else {
            return Err(Problem::new(
                axum::http::StatusCode::FORBIDDEN,
                "this console is read-only: console.act_url is not set",
            ));
        };
        Ok(actor.call(action).await??)
    }
}

/// The sessions of one login. Each runs one call at a time.
struct LoginPool {
    free: Mutex<Vec<Arc<SessionPool>>>,
    permits: Semaphore,
}

impl LoginPool {
    fn new(target: &Target, count: usize) -> Self {
        let target = Arc::new(target.clone());
        let free = (0..count).map(|_| Arc::new(SessionPool::new(Arc::clone(&target)))).collect();
        Self { free: Mutex::new(free), permits: Semaphore::new(count) }
    }

    /// The result of the call; a problem if it could not be made.
    async fn call<T, E>(&self, call: impl AsyncFnOnce(&Client) -> Result<T, E>) -> Result<Result<T, E>, Problem> {
        let permit = timeout(SESSION_WAIT_TIMEOUT, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else { return Err(all_sessions_busy()) };
        let session = PooledSession::check_out(&self.free)?;
        let result = timeout(
            CALL_TIMEOUT,
            session.pool.call(async |session| Ok::<_, LaneError>(call(session.client()).await)),
        )
        .await;
        match result {
            Ok(Ok(result)) => Ok(result),
            Ok(Err(error)) => {
                tracing::warn!(%error, "the console could not reach the database");
                Err(Problem::unavailable(
                    "the database could not be reached; the log of this process has the error",
                ))
            }
            Err(_) => Err(Problem::unavailable(format!(
                "the database did not answer within {} s: try again",
                CALL_TIMEOUT.as_secs()
            ))),
        }
    }
}

fn all_sessions_busy() -> Problem {
    Problem::unavailable("all database sessions of the console are busy: try again in a moment")
}

/// A session in use. Dropping it returns it to the pool.
struct PooledSession<'a> {
    free: &'a Mutex<Vec<Arc<SessionPool>>>,
    pool: Arc<SessionPool>,
}

impl<'a> PooledSession<'a> {
    fn check_out(free: &'a Mutex<Vec<Arc<SessionPool>>>) -> Result<Self, Problem> {
        let pool = free.lock().unwrap_or_else(PoisonError::into_inner).pop();
        Ok(Self { free, pool: pool.ok_or_else(all_sessions_busy)? })
    }
}

impl Drop for PooledSession<'_> {
    fn drop(&mut self) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).push(Arc::clone(&self.pool));
    }
}

/// Refuses a login without the role that it needs, or with more rights than the roles that it may hold.
pub(crate) async fn check(setting: &str, target: &Target, needs: &str, may_hold: &[&str]) -> Result<(), Error> {
    let mut client = target.connect_session().await?.into_client();
    schema::guard(&mut client).await?;
    let missing = roles::missing_roles(&client, &[needs]).await?;
    if !missing.is_empty() {
        return Err(Error::Login {
            message: format!("{setting}: the login lacks the role {needs}"),
            hint: format!("ask a DBA to run: grant {needs} to that login"),
        });
    }
    let excess = roles::excess_privileges(&client, may_hold).await?;
    if excess.is_empty() {
        return Ok(());
    }
    Err(Error::Login {
        message: format!("{setting}: the login may do more than it must: {}", excess.join("; ")),
        hint: format!("use a separate login that holds {needs} and no other role of Symphony"),
    })
}
