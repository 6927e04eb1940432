//! Waits for a state of the server, so that concurrent sessions of a proof meet without sleeps.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::evidence::Failure;

/// How long to wait for a state before the proof fails.
const TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(2);

/// The process id of a session on the server.
pub(super) async fn pid(client: &Client) -> Result<i32, Failure> {
    Ok(client.query_one("select pg_backend_pid()", &[]).await?.get(0))
}

/// Returns when all of these sessions wait for a lock, or fails after the timeout.
pub(super) async fn all_wait_for_locks(watcher: &Client, pids: &[i32]) -> Result<(), Failure> {
    let waiting = "select count(distinct pid) from pg_locks where pid = any ($1) and not granted";
    let wanted = i64::try_from(pids.len()).unwrap_or(i64::MAX);
    let deadline = Instant::now() + TIMEOUT;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    loop {
        ticks.tick().await;
        let found: i64 = watcher.query_one(waiting, &[&pids]).await?.get(0);
        if found == wanted {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure {
                tried: format!("waiting until {wanted} sessions wait for locks"),
                expected: format!("all {wanted} wait"),
                happened: format!("{found} wait after {TIMEOUT:?}"),
            });
        }
    }
}

/// Returns when a session is inside pg_sleep.
pub(super) async fn is_in_pg_sleep(watcher: &Client, pid: i32) -> Result<(), Failure> {
    let sleeping = "select count(*) from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'";
    let deadline = Instant::now() + TIMEOUT;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    loop {
        ticks.tick().await;
        let found: i64 = watcher.query_one(sleeping, &[&pid]).await?.get(0);
        if found == 1 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure {
                tried: "waiting until a session is in pg_sleep".into(),
                expected: "it is".into(),
                happened: format!("it is not after {TIMEOUT:?}"),
            });
        }
    }
}

/// Returns true when the session of a task waits for a lock, false when the task ends without waiting.
pub(super) async fn waits_for_lock<T>(watcher: &Client, pid: i32, task: &JoinHandle<T>) -> Result<bool, Failure> {
    let waiting = "select count(distinct pid) from pg_locks where pid = $1 and not granted";
    let deadline = Instant::now() + TIMEOUT;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    loop {
        ticks.tick().await;
        let found: i64 = watcher.query_one(waiting, &[&pid]).await?.get(0);
        if found == 1 || task.is_finished() {
            return Ok(found == 1);
        }
        if Instant::now() > deadline {
            return Err(Failure {
                tried: "waiting until a session waits for a lock".into(),
                expected: "it waits or ends".into(),
                happened: format!("neither after {TIMEOUT:?}"),
            });
        }
    }
}

/// Returns when a query counts at least one row, or fails after the timeout.
pub(super) async fn count_is_positive(watcher: &Client, query: &str, what: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + TIMEOUT;
    let mut ticks = tokio::time::interval(POLL_INTERVAL);
    loop {
        ticks.tick().await;
        let found: i64 = watcher.query_one(query, &[]).await?.get(0);
        if found > 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure {
                tried: format!("waiting until {what}"),
                expected: "it happens".into(),
                happened: format!("it did not happen within {TIMEOUT:?}"),
            });
        }
    }
}
