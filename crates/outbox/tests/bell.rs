//! The bell, rung by real commits.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::time::Duration;

use symphony_outbox::bell::{Bell, Channel};
use symphony_outbox::connect::Target;
use symphony_proof::kit::scratch::{Database, Server};
use tokio::time::timeout;
use tokio_postgres::Client;

/// Long enough for a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(30);
/// Long enough for a bell that rings without a reason to be caught at it.
const A_MOMENT: Duration = Duration::from_millis(300);

/// Who wants the wake-up lock, and no other: writers hold advisory locks of their own.
const SLEEPERS: &str = "from pg_locks l join pg_database d on d.oid = l.database, \
                          lateral (select symphony.wakeup_lock('outbox_pending') as key) w \
                        where d.datname = current_database() and l.locktype = 'advisory' and l.mode = 'ExclusiveLock' \
                          and l.classid = ((w.key >> 32) & 4294967295)::oid and l.objid = (w.key & 4294967295)::oid";

struct Stage {
    database: Database,
    root: Client,
    executor: Target,
}

impl Stage {
    async fn set() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let root = database.connect().await.unwrap();
        root.batch_execute("select symphony.register_payment_rail('sepa', '{}', 'test', 'bell')").await.unwrap();
        let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
        Self { database, root, executor: Target::parse(&url).unwrap() }
    }

    async fn bell(&self) -> Bell {
        Bell::hang(&self.executor, Channel::PAYMENT).await.unwrap()
    }

    /// Arms a bell, and lets it ring once more where that took long.
    async fn lay_down(&self, bell: &mut Bell) {
        bell.arm().await.unwrap();
        self.until_sleepers(1).await;
        while !is_silent(bell).await {}
    }

    /// How many sessions hold the wake-up lock, or wait for it.
    async fn sleepers(&self) -> i64 {
        self.root.query_one(&format!("select count(*) {SLEEPERS}"), &[]).await.unwrap().get(0)
    }

    /// The session that holds the wake-up lock.
    async fn holder(&self) -> Option<i32> {
        let sql = format!("select l.pid {SLEEPERS} and l.granted");
        self.root.query_opt(&sql, &[]).await.unwrap().map(|row| row.get(0))
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
    stage.lay_down(&mut bell).await;
    enqueue(&stage.root, "asleep").await;
    assert!(rings(&mut bell).await);
    bell.disarm();
    stage.until_sleepers(0).await;
    enqueue(&stage.root, "awake again").await;
    assert!(is_silent(&mut bell).await);
    stage.lay_down(&mut bell).await;
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
    stage.lay_down(&mut first).await;
    stage.lay_down(&mut second).await;
    enqueue(&stage.root, "one").await;
    assert!(rings(&mut first).await && rings(&mut second).await);
    let holder = stage.holder().await;
    assert!(holder.is_some());
    drop(first);
    // The second one asks again now and then, and has the lock itself once the first one's is gone.
    let another = async {
        loop {
            let now = stage.holder().await;
            if now.is_some() && now != holder {
                break;
            }
        }
    };
    timeout(SOON, another).await.unwrap();
    while !is_silent(&mut second).await {}
    enqueue(&stage.root, "two").await;
    assert!(rings(&mut second).await);
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
        // On a busy machine it may ring once more, because arming it took long.
        let lost = timeout(SOON, async { while bell.rung().await.is_ok() {} }).await;
        assert!(lost.is_ok(), "{victim}");
        assert!(bell.check().await.is_err());
        drop(bell);
        stage.until_sleepers(0).await;
    }
}
