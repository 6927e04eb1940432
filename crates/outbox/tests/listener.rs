//! Notifications of real commits.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::time::Duration;

use symphony_outbox::connect::Target;
use symphony_outbox::listener::{Channel, NotifyListener};
use symphony_proof::kit::scratch::{Database, Server};
use tokio::time::timeout;
use tokio_postgres::Client;

/// Long enough for a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(30);
/// Long enough to catch a notification without a reason.
const A_MOMENT: Duration = Duration::from_millis(300);

/// Who wants the wake-up lock, and no other: writers hold advisory locks of their own.
const IDLE_RELAYERS: &str = "from pg_locks l join pg_database d on d.oid = l.database, \
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

    async fn listener(&self) -> NotifyListener {
        NotifyListener::connect(&self.executor, Channel::PAYMENT).await.unwrap()
    }

    /// Arms a listener, and takes the notification that follows if that took long.
    async fn arm(&self, listener: &mut NotifyListener) {
        listener.arm().await.unwrap();
        self.until_idle_relayers(1).await;
        while !is_silent(listener).await {}
    }

    /// How many sessions hold the wake-up lock, or wait for it.
    async fn idle_relayers(&self) -> i64 {
        self.root.query_one(&format!("select count(*) {IDLE_RELAYERS}"), &[]).await.unwrap().get(0)
    }

    /// The session that holds the wake-up lock.
    async fn holder(&self) -> Option<i32> {
        let sql = format!("select l.pid {IDLE_RELAYERS} and l.granted");
        self.root.query_opt(&sql, &[]).await.unwrap().map(|row| row.get(0))
    }

    async fn until_idle_relayers(&self, count: i64) {
        timeout(SOON, async { while self.idle_relayers().await != count {} }).await.unwrap();
    }
}

async fn enqueue(client: &Client, instruction: &str) {
    let sql = "select from symphony.enqueue_payment_outbox($1, $1, 'key', 'sepa', '{}')";
    client.execute(sql, &[&instruction]).await.unwrap();
}

async fn is_notified(listener: &mut NotifyListener) -> bool {
    timeout(SOON, listener.notified()).await.unwrap().is_ok()
}

async fn is_silent(listener: &mut NotifyListener) -> bool {
    timeout(A_MOMENT, listener.notified()).await.is_err()
}

#[tokio::test]
async fn an_armed_bell_rings_when_work_is_committed_and_a_disarmed_one_does_not() {
    let stage = Stage::set().await;
    let mut listener = stage.listener().await;
    enqueue(&stage.root, "awake").await;
    assert!(is_silent(&mut listener).await);
    stage.arm(&mut listener).await;
    enqueue(&stage.root, "asleep").await;
    assert!(is_notified(&mut listener).await);
    listener.disarm();
    stage.until_idle_relayers(0).await;
    enqueue(&stage.root, "awake again").await;
    assert!(is_silent(&mut listener).await);
    stage.arm(&mut listener).await;
    enqueue(&stage.root, "asleep again").await;
    assert!(is_notified(&mut listener).await);
}

#[tokio::test]
async fn a_bell_armed_during_a_transaction_rings_when_that_has_ended() {
    let stage = Stage::set().await;
    let mut listener = stage.listener().await;
    let writer = stage.database.connect().await.unwrap();
    writer.batch_execute("begin").await.unwrap();
    enqueue(&writer, "open").await;
    listener.arm().await.unwrap();
    stage.until_idle_relayers(1).await;
    // Others notify at once, though the lock is only waited for.
    enqueue(&stage.root, "other").await;
    assert!(is_notified(&mut listener).await);
    writer.batch_execute("commit").await.unwrap();
    assert!(is_notified(&mut listener).await);
    enqueue(&stage.root, "later").await;
    assert!(is_notified(&mut listener).await);
}

#[tokio::test]
async fn all_sleepers_hear_and_the_next_takes_over_when_one_wakes() {
    let stage = Stage::set().await;
    let (mut first, mut second) = (stage.listener().await, stage.listener().await);
    stage.arm(&mut first).await;
    stage.arm(&mut second).await;
    enqueue(&stage.root, "one").await;
    assert!(is_notified(&mut first).await && is_notified(&mut second).await);
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
    assert!(is_notified(&mut second).await);
}

#[tokio::test]
async fn a_bell_whose_sessions_are_ended_is_lost_and_says_so() {
    let stage = Stage::set().await;
    for victim in ["listen%", "%arm_wakeup%"] {
        let mut listener = stage.listener().await;
        listener.arm().await.unwrap();
        stage.until_idle_relayers(1).await;
        listener.check().await.unwrap();
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid() \
                     and (query like $1 or query like 'unlisten%' and $1 like 'listen%' or query = 'select 1' and $1 like 'listen%')";
        assert_eq!(stage.root.execute(end, &[&victim]).await.unwrap(), 1);
        // On a busy machine one more notification may arrive, because arming took long.
        let lost = timeout(SOON, async { while listener.notified().await.is_ok() {} }).await;
        assert!(lost.is_ok(), "{victim}");
        assert!(listener.check().await.is_err());
        drop(listener);
        stage.until_idle_relayers(0).await;
    }
}
