//! Notifications of real commits.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::time::Duration;

use symphony_db::connect::Target;
use symphony_db::listener::{Channel, NotifyListener};
use symphony_db::relayers::{listeners_of, session_name};
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::until;
use tokio::time::timeout;
use tokio_postgres::Client;

/// Long enough for a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(30);
/// Long enough to catch a notification without a reason.
const A_MOMENT: Duration = Duration::from_millis(300);

/// Who wants the wake-up lock, and no other: writers hold advisory locks of their own.
const IDLE_RELAYERS: &str = "from pg_locks l join pg_database d on d.oid = l.database, \
                          lateral (select symphony.wakeup_lock_key('outbox_pending') as key) w \
                        where d.datname = current_database() and l.locktype = 'advisory' and l.mode = 'ExclusiveLock' \
                          and l.classid = ((w.key >> 32) & 4294967295)::oid and l.objid = (w.key & 4294967295)::oid";

struct Fixture {
    database: Database,
    root: Client,
    executor: Target,
}

impl Fixture {
    async fn new() -> Self {
        let database = Server::from_env().await.unwrap().database().await.unwrap();
        let root = database.connect().await.unwrap();
        root.batch_execute("select symphony.register_payment_rail('sepa', '{}', 'test', 'listener')")
            .await
            .unwrap();
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
async fn a_listener_with_the_wakeup_lock_is_notified_of_a_commit_and_one_without_is_not() {
    let fixture = Fixture::new().await;
    let mut listener = fixture.listener().await;
    enqueue(&fixture.root, "awake").await;
    assert!(is_silent(&mut listener).await);
    fixture.arm(&mut listener).await;
    enqueue(&fixture.root, "asleep").await;
    assert!(is_notified(&mut listener).await);
    listener.disarm();
    fixture.until_idle_relayers(0).await;
    enqueue(&fixture.root, "awake again").await;
    assert!(is_silent(&mut listener).await);
    fixture.arm(&mut listener).await;
    enqueue(&fixture.root, "asleep again").await;
    assert!(is_notified(&mut listener).await);
}

#[tokio::test]
async fn a_listener_armed_during_a_transaction_is_notified_when_it_ends() {
    let fixture = Fixture::new().await;
    let mut listener = fixture.listener().await;
    let writer = fixture.database.connect().await.unwrap();
    writer.batch_execute("begin").await.unwrap();
    enqueue(&writer, "open").await;
    listener.arm().await.unwrap();
    fixture.until_idle_relayers(1).await;
    // Others notify at once, though the lock is only waited for.
    enqueue(&fixture.root, "other").await;
    assert!(is_notified(&mut listener).await);
    writer.batch_execute("commit").await.unwrap();
    assert!(is_notified(&mut listener).await);
    enqueue(&fixture.root, "later").await;
    assert!(is_notified(&mut listener).await);
}

#[tokio::test]
async fn all_idle_relayers_are_notified_and_the_next_takes_the_lock_when_one_wakes() {
    let fixture = Fixture::new().await;
    let (mut first, mut second) = (fixture.listener().await, fixture.listener().await);
    fixture.arm(&mut first).await;
    fixture.arm(&mut second).await;
    enqueue(&fixture.root, "one").await;
    assert!(is_notified(&mut first).await && is_notified(&mut second).await);
    let holder = fixture.holder().await;
    assert!(holder.is_some());
    drop(first);
    // The second one asks again now and then, and has the lock itself once the first one's is gone.
    let another = async {
        loop {
            let now = fixture.holder().await;
            if now.is_some() && now != holder {
                break;
            }
        }
    };
    timeout(SOON, another).await.unwrap();
    while !is_silent(&mut second).await {}
    enqueue(&fixture.root, "two").await;
    assert!(is_notified(&mut second).await);
}

#[tokio::test]
async fn a_listener_whose_sessions_are_ended_reports_that_it_is_lost() {
    let fixture = Fixture::new().await;
    for victim in ["listen%", "%acquire_wakeup_lock%"] {
        let mut listener = fixture.listener().await;
        listener.arm().await.unwrap();
        fixture.until_idle_relayers(1).await;
        listener.check().await.unwrap();
        let end = "select pg_terminate_backend(pid) from pg_stat_activity \
                   where datname = current_database() and pid <> pg_backend_pid() \
                     and (query like $1 or query like 'unlisten%' and $1 like 'listen%' or query = 'select 1' and $1 like 'listen%')";
        assert_eq!(fixture.root.execute(end, &[&victim]).await.unwrap(), 1);
        // On a busy machine one more notification may arrive, because arming took long.
        let lost = timeout(SOON, async { while listener.notified().await.is_ok() {} }).await;
        assert!(lost.is_ok(), "{victim}");
        assert!(listener.check().await.is_err());
        drop(listener);
        fixture.until_idle_relayers(0).await;
    }
}

#[tokio::test]
async fn a_listener_stays_connected_whatever_the_idle_session_timeout() {
    let fixture = Fixture::new().await;
    let timeout_of_database = "do $$ begin
        execute format('alter database %I set idle_session_timeout = %L', current_database(), '200ms');
      end $$";
    fixture.root.batch_execute(timeout_of_database).await.unwrap();
    // A session that does nothing ends after that time.
    let other = fixture.database.connect().await.unwrap();
    let mut listener = fixture.listener().await;
    listener.arm().await.unwrap();
    fixture.until_idle_relayers(1).await;
    until("the other session has ended", SOON, async || other.is_closed()).await.unwrap();
    listener.check().await.unwrap();
    enqueue(&fixture.root, "late").await;
    assert!(is_notified(&mut listener).await);
}

#[tokio::test]
async fn listeners_of_one_name_on_one_channel_are_counted() {
    let fixture = Fixture::new().await;
    let named = |name: &str| fixture.executor.with_session_name(&session_name(name));
    let one = NotifyListener::connect(&named("a"), Channel::PAYMENT).await.unwrap();
    let _other_lane = NotifyListener::connect(&named("a"), Channel::EVENT).await.unwrap();
    let _other_name = NotifyListener::connect(&named("b"), Channel::PAYMENT).await.unwrap();
    let executor = fixture.executor.connect().await.unwrap();
    assert_eq!(listeners_of(&executor, "a").await.unwrap(), 1);
    let twin = NotifyListener::connect(&named("a"), Channel::PAYMENT).await.unwrap();
    assert_eq!(listeners_of(&executor, "a").await.unwrap(), 2);
    drop(one);
    until("its session has ended", SOON, async || listeners_of(&executor, "a").await.unwrap() == 1).await.unwrap();
    drop(twin);
    assert_eq!(listeners_of(&executor, "c").await.unwrap(), 0);
}
