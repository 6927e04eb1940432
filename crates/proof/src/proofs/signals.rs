//! How the sessions of a proof meet: by the state of the server, never by the time that has passed.

use std::time::{Duration, Instant};

use tokio::task::JoinHandle;
use tokio_postgres::Client;

use super::evidence::Failure;

/// How long a state may take to come before the proof gives up.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks at the server, which has the sessions themselves to serve.
const PAUSE: Duration = Duration::from_millis(2);

/// The number of a session's server process.
pub(super) async fn pid(client: &Client) -> Result<i32, Failure> {
    Ok(client.query_one("select pg_backend_pid()", &[]).await?.get(0))
}

/// Returns when all of these sessions wait for a lock, or says that one of them does not get there.
pub(super) async fn all_wait(watcher: &Client, pids: &[i32]) -> Result<(), Failure> {
    let waiting = "select count(distinct pid) from pg_locks where pid = any ($1) and not granted";
    let wanted = i64::try_from(pids.len()).unwrap_or(i64::MAX);
    let deadline = Instant::now() + PATIENCE;
    let mut looks = tokio::time::interval(PAUSE);
    loop {
        looks.tick().await;
        let found: i64 = watcher.query_one(waiting, &[&pids]).await?.get(0);
        if found == wanted {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure {
                tried: format!("letting {wanted} sessions wait for each other's locks"),
                expected: format!("all {wanted} wait"),
                happened: format!("{found} wait after {PATIENCE:?}"),
            });
        }
    }
}

/// Returns when a session sleeps inside its statement.
pub(super) async fn sleeps(watcher: &Client, pid: i32) -> Result<(), Failure> {
    let sleeping = "select count(*) from pg_stat_activity where pid = $1 and wait_event = 'PgSleep'";
    let deadline = Instant::now() + PATIENCE;
    let mut looks = tokio::time::interval(PAUSE);
    loop {
        looks.tick().await;
        let found: i64 = watcher.query_one(sleeping, &[&pid]).await?.get(0);
        if found == 1 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure {
                tried: "letting a statement wait".into(),
                expected: "it sleeps".into(),
                happened: format!("it does not after {PATIENCE:?}"),
            });
        }
    }
}

/// Returns true when the session that a task uses waits for a lock, false when the task has ended without.
pub(super) async fn waits<T>(watcher: &Client, pid: i32, task: &JoinHandle<T>) -> Result<bool, Failure> {
    let waiting = "select count(distinct pid) from pg_locks where pid = $1 and not granted";
    let deadline = Instant::now() + PATIENCE;
    let mut looks = tokio::time::interval(PAUSE);
    loop {
        looks.tick().await;
        let found: i64 = watcher.query_one(waiting, &[&pid]).await?.get(0);
        if found == 1 || task.is_finished() {
            return Ok(found == 1);
        }
        if Instant::now() > deadline {
            return Err(Failure {
                tried: "letting a session wait for a lock".into(),
                expected: "it waits or ends".into(),
                happened: format!("neither after {PATIENCE:?}"),
            });
        }
    }
}

/// Returns when a query counts something, or says what did not come about.
pub(super) async fn counts(watcher: &Client, query: &str, what: &str) -> Result<(), Failure> {
    let deadline = Instant::now() + PATIENCE;
    let mut looks = tokio::time::interval(PAUSE);
    loop {
        looks.tick().await;
        let found: i64 = watcher.query_one(query, &[]).await?.get(0);
        if found > 0 {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(Failure {
                tried: format!("waiting until {what}"),
                expected: "it comes about".into(),
                happened: format!("it did not within {PATIENCE:?}"),
            });
        }
    }
}
