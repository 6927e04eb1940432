//! The bell, rung by real commits.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::time::Duration;

use symphony_outbox::bell::{Bell, Channel, Error};
use symphony_outbox::connect::Target;
use symphony_proof::kit::scratch::{Database, Server};
use tokio::time::timeout;
use tokio_postgres::Client;

/// Long enough for a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(30);
/// Long enough for a bell that rings without a reason to be caught at it.
const A_MOMENT: Duration = Duration::from_millis(300);

struct Stage {
    database: Database,
    root: Client,
    executor: Target,
}

impl Stage {
    async fn set() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let root = database.connect().await.unwrap();
        root.batch_execute("select symphony.set_payment_rail('sepa', '{}', 'test', 'bell')").await.unwrap();
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        Self { database, root, executor: Target::parse(&url).unwrap() }
    }

    async fn bell(&self) -> Bell {
        Bell::hang(&self.executor, Channel::PAYMENT).await.unwrap()
    }

    /// How many sessions hold the wake-up lock, or wait for it.
    async fn sleepers(&self) -> i64 {
        let sql = "select count(*) from pg_locks l join pg_stat_activity a using (pid) \
                   where l.locktype = 'advisory' and l.mode = 'ExclusiveLock' and a.datname = current_database()";
        self.root.query_one(sql, &[]).await.unwrap().get(0)
    }

    async fn until_sleepers(&self, count: i64) {
        timeout(SOON, async { while self.sleepers().await != count {} }).await.unwrap();
    }
}

async fn enqueue(client: &Client, instruction: &str) {
    let sql = "select from symphony.enqueue_payment_outbox($1, $1, 'key', 'sepa', '{}')";
    client.execute(sql, &[&instruction]).await.unwrap();
}

async fn rings(bell: &mut Bell) -> bool {
    timeout(SOON, bell.rung()).await.unwrap().is_ok()
}

async fn is_silent(bell: &mut Bell) -> bool {
    timeout(A_MOMENT, bell.rung()).await.is_err()
}

#[tokio::test]
async fn an_armed_bell_rings_when_work_is_committed_and_a_disarmed_one_does_not() {
    let stage = Stage::set().await;
    let mut bell = stage.bell().await;
    enqueue(&stage.root, "awake").await;
    assert!(is_silent(&mut bell).await);
    bell.arm().await.unwrap();
    enqueue(&stage.root, "asleep").await;
    assert!(rings(&mut bell).await);
    bell.disarm();
    stage.until_sleepers(0).await;
    enqueue(&stage.root, "awake again").await;
    assert!(is_silent(&mut bell).await);
    bell.arm().await.unwrap();
    enqueue(&stage.root, "asleep again").await;
    assert!(rings(&mut bell).await);
}

#[tokio::test]
async fn a_bell_armed_during_a_transaction_rings_when_that_has_ended() {
    let stage = Stage::set().await;
    let mut bell = stage.bell().await;
    let writer = stage.database.connect().await.unwrap();
    writer.batch_execute("begin").await.unwrap();
    enqueue(&writer, "open").await;
    bell.arm().await.unwrap();
    stage.until_sleepers(1).await;
    // Others ring at once, though the lock is only waited for.
    enqueue(&stage.root, "other").await;
    assert!(rings(&mut bell).await);
    writer.batch_execute("commit").await.unwrap();
    assert!(rings(&mut bell).await);
    enqueue(&stage.root, "later").await;
    assert!(rings(&mut bell).await);
}

#[tokio::test]
async fn all_sleepers_hear_and_the_next_takes_over_when_one_wakes() {
    let stage = Stage::set().await;
    let (mut first, mut second) = (stage.bell().await, stage.bell().await);
    first.arm().await.unwrap();
    second.arm().await.unwrap();
    enqueue(&stage.root, "one").await;
    assert!(rings(&mut first).await && rings(&mut second).await);
    drop(first);
    // What was the first one's is noticed to be gone when the second arms again, as it does now and then.
    timeout(SOON, async {
        loop {
            second.arm().await.unwrap();
            enqueue(&stage.root, &uuid::Uuid::new_v4().to_string()).await;
            if timeout(A_MOMENT, second.rung()).await.is_ok() {
                break;
            }
        }
    })
    .await
    .unwrap();
    assert_eq!(stage.sleepers().await, 1);
}

#[tokio::test]
async fn a_bell_whose_sessions_are_ended_is_lost_and_says_so() {
    let stage = Stage::set().await;
    for victim in ["listen%", "%arm_wakeup%"] {
        let mut bell = stage.bell().await;
        bell.arm().await.unwrap();
        stage.until_sleepers(1).await;
        bell.check().await.unwrap();
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid() \
                     and (query like $1 or query like 'unlisten%' and $1 like 'listen%' or query = 'select 1' and $1 like 'listen%')";
        assert_eq!(stage.root.execute(end, &[&victim]).await.unwrap(), 1);
        // Where arming took long it has rung by itself before.
        let lost = timeout(SOON, async {
            loop {
                if let Err(lost) = bell.rung().await {
                    break lost;
                }
            }
        });
        let lost = lost.await.unwrap();
        assert!(matches!(lost, Error::Lost), "{victim}: {lost:?}");
        assert!(bell.check().await.is_err());
        drop(bell);
        stage.until_sleepers(0).await;
    }
}
