//! The payment lane on a real PostgreSQL.

#![cfg(test)]

#[path = "metadata/captured_log.rs"]
mod captured_log;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use symphony_db::connect::Target;
use symphony_db::payment::RailAnswer;
use symphony_relay::claim_capacity::ClaimCapacity;
use symphony_relay::epoch::EpochFence;
use symphony_relay::lane::{Completion, CompletionResult, DispatchResult, LaneError, RouteSignal};
use symphony_relay::lease::LeaseWatch;
use symphony_relay::listener::PostgresListener;
use symphony_relay::payment::{Job, PaymentLane, PaymentOutcome};
use symphony_relay::rail::{Answer, BoxFuture, Inquiry, Invalid, Payment, Rail, Reason};
use symphony_relay::stop::StopHandle;
use symphony_relay::{Engine, Lane, Settings};
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::until;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

/// Long enough for a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(60);

/// A rail whose outcomes are unknown, or which never answers although it has a timeout. It never answers an inquiry.
struct FakeRail {
    answers: bool,
    supports_inquiry: bool,
}

impl Rail for FakeRail {
    fn validate(&self, _: &Payment) -> Result<(), Invalid> {
        Ok(())
    }
    fn dispatch<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Answer> {
        Box::pin(async {
            if !self.answers {
                std::future::pending::<()>().await;
            }
            Answer::Unknown { message: "connection lost".to_owned(), rail: RailAnswer::default(), row_only: false }
        })
    }
    fn timeout(&self) -> Duration {
        Duration::from_millis(1)
    }
    fn supports_inquiry(&self) -> bool {
        self.supports_inquiry
    }
    fn inquire<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(std::future::pending())
    }
}

/// A database with a rail and this number of payments.
async fn database(instructions: i32) -> Database {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let root = database.connect().await.unwrap();
    root.batch_execute("select symphony.register_payment_rail('sepa', '{}', 'test', 'relay')").await.unwrap();
    let enqueue = "select count(symphony.enqueue_payment_outbox('i' || n, 'p' || n, 'k' || n, 'sepa', '{}')) \
                   from generate_series(1, $1) n";
    root.query(enqueue, &[&instructions]).await.unwrap();
    database
}

async fn target(database: &Database) -> Target {
    Target::parse(&database.url_as_login(&["symphony_executor"]).await.unwrap()).unwrap()
}

fn lane(target: Target, lease: Duration) -> PaymentLane {
    lane_of(FakeRail { answers: true, supports_inquiry: false }, target, lease)
}

fn lane_of(rail: FakeRail, target: Target, lease: Duration) -> PaymentLane {
    let rails: BTreeMap<String, Arc<dyn Rail>> = BTreeMap::from([("sepa".to_owned(), Arc::new(rail) as _)]);
    PaymentLane::new(Arc::new(target), "worker-1".into(), lease, rails)
}

fn held() -> LeaseWatch {
    LeaseWatch::new(Instant::now() + LEASE, Duration::from_secs(3)).1
}

#[tokio::test]
async fn a_process_may_hold_more_leases_than_one_call_accepts() {
    let database = database(1001).await;
    let lane = lane(target(&database).await, LEASE);
    let mut leases = Vec::new();
    for _ in 0..2 {
        let jobs = lane.claim(&ClaimCapacity::new(1000, 1000)).await.unwrap();
        leases.extend(jobs.jobs.iter().map(|job| lane.lease(job)));
    }
    assert_eq!(leases.len(), 1001);
    assert_eq!(lane.renew(&leases).await.unwrap(), vec![true; 1001]);
    assert_eq!(lane.release(&leases).await.unwrap(), 1001);
    assert_eq!(lane.renew(&leases).await.unwrap(), vec![false; 1001]);
}

#[tokio::test]
async fn a_completion_that_waits_for_a_lock_does_not_block_the_next() {
    let database = database(2).await;
    let lane = lane(target(&database).await, LEASE);
    let mut done = Vec::new();
    for job in lane.claim(&ClaimCapacity::new(2, 2)).await.unwrap().jobs {
        let lease = lane.lease(&job);
        done.push(Arc::new(Completion { lease, outcome: lane.dispatch(job, held()).await.outcome }));
    }
    let root = database.connect().await.unwrap();
    root.batch_execute(
        "begin; select from symphony.payment_outbox_pending where instruction_id = 'i1' for update",
    )
    .await
    .unwrap();
    let watcher = database.connect().await.unwrap();
    let waits = "select count(*) from pg_stat_activity \
                 where datname = current_database() and wait_event_type = 'Lock' and query like '%complete_outbox_batch%'";
    let first = lane.complete(&done[..1]);
    let next = async {
        until("the first completion waits for its row", SOON, async || {
            watcher.query_one(waits, &[]).await.unwrap().get::<_, i64>(0) == 1
        })
        .await
        .unwrap();
        lane.complete(&done[1..]).await.unwrap()
    };
    tokio::select! {
        ended = next => assert_eq!(ended, [CompletionResult::Recorded { state: "RETRYABLE", retry_scheduled: true, unblocks_rows: false }]),
        ended = first => panic!("the next waited for the first, which returned {ended:?}"),
    }
}

#[tokio::test]
async fn a_lease_that_is_released_while_a_session_is_checked_opens_no_epoch() {
    captured_log::start();
    let database = database(1).await;
    let lane = lane(target(&database).await, LEASE);
    let job = lane.claim(&ClaimCapacity::new(1, 1)).await.unwrap().jobs.remove(0);
    let leases = [lane.lease(&job)];
    // The next claim begins on a new session, and asks it for the lease.
    database.terminate_sessions().await.unwrap();
    let root = database.connect().await.unwrap();
    // The check reads this table, and a release does not.
    root.batch_execute("begin; lock table symphony.payment_ledger_archives").await.unwrap();
    let watcher = database.connect().await.unwrap();
    let checks = "select count(*) from pg_stat_activity
                  where datname = current_database() and wait_event_type = 'Lock' and query like '%check_worker_history%'";
    let one = ClaimCapacity::new(1, 1);
    let claim = async {
        // The session that was terminated may fail first.
        while lane.claim(&one).await.is_err() {}
    };
    let release = async {
        until("the new session is being checked", SOON, async || {
            watcher.query_one(checks, &[]).await.unwrap().get::<_, i64>(0) == 1
        })
        .await
        .unwrap();
        let mut release = std::pin::pin!(lane.release(&leases));
        let waits = until("the release waits for the check", SOON, async || {
            !captured_log::containing("waits until a session has been asked").is_empty()
        });
        // It must not end before the check can.
        let early = tokio::select! {
            released = &mut release => Some(released),
            waits = waits => waits.map(|()| None).unwrap(),
        };
        root.batch_execute("rollback").await.unwrap();
        match early {
            Some(released) => released.unwrap(),
            None => release.await.unwrap(),
        }
    };
    let ((), released) = tokio::join!(claim, release);
    assert_eq!(released, 1);
    let epochs = watcher.query_one("select count(*) from symphony.epoch", &[]).await.unwrap();
    assert_eq!(epochs.get::<_, i64>(0), 1, "the commit was not lost");
}

/// Dispatches the payment, and claims it again after an unknown outcome.
async fn claim_of_unknown_outcome(lane: &PaymentLane, database: &Database) -> Job {
    let one = ClaimCapacity::new(1, 1);
    let job = lane.claim(&one).await.unwrap().jobs.remove(0);
    let lease = lane.lease(&job);
    let sent = lane.dispatch(job, held()).await;
    let ended = lane.complete(&[Arc::new(Completion { lease, outcome: sent.outcome })]).await.unwrap();
    assert_eq!(
        ended,
        [CompletionResult::Recorded { state: "RETRYABLE", retry_scheduled: true, unblocks_rows: false }]
    );
    let root = database.connect().await.unwrap();
    root.batch_execute("update symphony.payment_outbox_pending set next_attempt_at = now()").await.unwrap();
    let job = lane.claim(&one).await.unwrap().jobs.remove(0);
    assert!(job.claimed.outcome_unknown);
    job
}

#[tokio::test]
async fn an_inquiry_to_a_rail_that_never_answers_times_out() {
    let database = database(1).await;
    let rail = FakeRail { answers: true, supports_inquiry: true };
    let lane = lane_of(rail, target(&database).await, LEASE);
    let job = claim_of_unknown_outcome(&lane, &database).await;
    let result = timeout(SOON, lane.dispatch(job, held())).await.expect("a timeout");
    let recorded = format!("{:?}", result.outcome);
    assert!(recorded.contains("OUTCOME_UNKNOWN") && recorded.contains("inquiry within"), "{recorded}");
}

#[tokio::test]
async fn reading_the_policy_from_a_database_that_never_answers_times_out() {
    let database = database(1).await;
    let job = claim_of_unknown_outcome(&lane(target(&database).await, LEASE), &database).await;
    // It accepts the connection and never answers, as behind a firewall that dropped the connection.
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://me@{}/x?connect_timeout=3600&sslmode=disable", silent.local_addr().unwrap());
    let unanswered = lane(Target::parse(&url).unwrap(), Duration::from_secs(1));
    let result: DispatchResult<PaymentOutcome> =
        timeout(SOON, unanswered.dispatch(job, held())).await.expect("a timeout");
    assert_eq!(result.signal, RouteSignal::Neutral);
    let recorded = format!("{:?}", result.outcome);
    assert!(recorded.contains("Retryable") && recorded.contains("OUTCOME_UNKNOWN"), "{recorded}");
}

#[tokio::test]
async fn a_dispatch_to_a_rail_that_never_answers_times_out() {
    let database = database(1).await;
    let lane = lane_of(FakeRail { answers: false, supports_inquiry: false }, target(&database).await, LEASE);
    let job = lane.claim(&ClaimCapacity::new(1, 1)).await.unwrap().jobs.remove(0);
    let sent = timeout(SOON, lane.dispatch(job, held())).await.expect("a timeout");
    assert_eq!(sent.signal, RouteSignal::Failing);
    let recorded = format!("{:?}", sent.outcome);
    assert!(recorded.contains("Retryable") && recorded.contains("OUTCOME_UNKNOWN"), "{recorded}");
}

#[tokio::test]
async fn a_payment_that_was_claimed_in_an_earlier_epoch_is_not_sent_under_that_claim() {
    let database = database(2).await;
    let rail = Arc::new(ScriptedRail::default());
    let fence = Arc::new(EpochFence::default());
    let rails: BTreeMap<String, Arc<dyn Rail>> = BTreeMap::from([("sepa".to_owned(), Arc::clone(&rail) as _)]);
    let lane = PaymentLane::new(Arc::new(target(&database).await), "worker-1".into(), LEASE, rails)
        .with_fence(Arc::clone(&fence));
    let mut jobs = lane.claim(&ClaimCapacity::new(2, 2)).await.unwrap().jobs;
    lane.dispatch(jobs.remove(0), held()).await;
    assert_eq!(rail.received.lock().unwrap().len(), 1);
    // Another lane of the process has reached the new primary.
    fence.see(2).unwrap();
    let result = lane.dispatch(jobs.remove(0), held()).await;
    let recorded = format!("{:?}", result.outcome);
    assert!(recorded.contains("Retryable") && recorded.contains("claimed in an earlier epoch"), "{recorded}");
    assert_eq!(rail.received.lock().unwrap().len(), 1, "nothing more was sent");
    let refused = lane.claim(&ClaimCapacity::new(1, 1)).await.unwrap_err();
    assert!(
        matches!(&refused, LaneError::Unavailable(why) if why.contains("it may be an old primary")),
        "{refused}"
    );
}

#[tokio::test]
async fn a_connection_error_contains_the_message_of_the_database() {
    let database = database(0).await;
    let lane = lane(target(&database).await.database("no_such_database"), LEASE);
    let error = lane.claim(&ClaimCapacity::new(1, 1)).await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
}

/// A rail that answers each payment as its instruction says, and keeps the order in which it received them.
#[derive(Default)]
struct ScriptedRail {
    received: Mutex<Vec<String>>,
}

impl Rail for ScriptedRail {
    fn validate(&self, _: &Payment) -> Result<(), Invalid> {
        Ok(())
    }
    fn dispatch<'a>(&'a self, payment: &'a Payment) -> BoxFuture<'a, Answer> {
        self.received.lock().unwrap().push(payment.instruction_id.clone());
        let (reason, rail) = (|| Reason { code: "X".to_owned(), message: None }, RailAnswer::default());
        let answer = match payment.instruction_id.split('-').next() {
            Some("retryable") => Answer::Retryable { reason: reason(), rail, retry_after: None },
            Some("refused") => Answer::Refused { reason: reason(), rail },
            Some("unknown") => Answer::Unknown { message: "lost".to_owned(), rail, row_only: true },
            _ => Answer::Executed(rail),
        };
        Box::pin(async move { answer })
    }
    fn timeout(&self) -> Duration {
        Duration::from_secs(1)
    }
    fn supports_inquiry(&self) -> bool {
        true
    }
    fn inquire<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Inquiry> {
        Box::pin(async { Inquiry::NeverSeen })
    }
}

/// Runs an engine for this rail until a query returns true.
async fn run_until(database: &Database, rail: Arc<ScriptedRail>, done: &str) {
    let rails: BTreeMap<String, Arc<dyn Rail>> = BTreeMap::from([("sepa".to_owned(), rail as _)]);
    let lane = PaymentLane::new(Arc::new(target(database).await), "worker-1".into(), LEASE, rails);
    let settings = Settings { repair_every: Duration::ZERO, ..Settings::default() };
    let engine = Engine::new(Arc::new(lane), settings).unwrap();
    let (stop, signal) = StopHandle::new();
    let watcher = database.connect().await.unwrap();
    let finished = async {
        until("the engine has done its work", SOON, async || {
            watcher.query_one(done, &[]).await.unwrap().get::<_, bool>(0)
        })
        .await
        .unwrap();
        stop.request_stop();
    };
    let run = engine.run(None::<PostgresListener>, signal);
    tokio::join!(run, finished);
}

async fn enqueue_stream(database: &Database, instructions: &[&str]) {
    let root = database.connect().await.unwrap();
    root.batch_execute(
        "select symphony.set_payment_rail('sepa', '{\"ordered\": true, \"backoff_base_seconds\": 3600}', 'test', 'relay')",
    )
    .await
    .unwrap();
    let enqueue = "select symphony.enqueue_payment_outbox($1, 'p', $1, 'sepa', '{}')";
    root.batch_execute("begin").await.unwrap();
    for instruction in instructions {
        root.query(enqueue, &[instruction]).await.unwrap();
    }
    root.batch_execute("commit").await.unwrap();
}

/// Claims these payments as one run, in sequence. A claim before has spare capacity.
async fn claim_run(lane: &PaymentLane, database: &Database, instructions: &[&str]) -> Vec<Job> {
    let capacity = ClaimCapacity::new(10, 10);
    assert!(lane.claim(&capacity).await.unwrap().jobs.is_empty());
    enqueue_stream(database, instructions).await;
    let mut jobs = lane.claim(&capacity).await.unwrap().jobs;
    jobs.sort_by_key(|job| job.claimed.sequence_id);
    jobs
}

#[tokio::test]
async fn a_run_is_dispatched_in_sequence_and_the_rest_is_released_when_one_is_not_dispatched() {
    for (middle, sent_behind) in [("retryable-3", false), ("unknown-3", false), ("refused-3", true)] {
        let database = database(0).await;
        enqueue_stream(&database, &["ok-1", "ok-2", middle, "ok-4", "ok-5"]).await;
        let rail = Arc::new(ScriptedRail::default());
        // Nothing is leased, and what can end has ended.
        let left = if sent_behind { 0 } else { 3 };
        let done = format!(
            "select count(*) = {left} and count(lease_token) = 0
               and (select count(*) from symphony.payment_outbox_attempts) = {}
             from symphony.payment_outbox_pending",
            if sent_behind { 5 } else { 3 }
        );
        run_until(&database, Arc::clone(&rail), &done).await;
        let mut expected = vec!["ok-1", "ok-2", middle];
        if sent_behind {
            expected.extend(["ok-4", "ok-5"]);
        }
        assert_eq!(*rail.received.lock().unwrap(), expected);
        // A released row has used no attempt.
        let root = database.connect().await.unwrap();
        let used = "select count(*) from symphony.payment_outbox_pending p
                    where p.sequence_id > 3 and p.attempt_count > 0";
        assert_eq!(root.query_one(used, &[]).await.unwrap().get::<_, i64>(0), 0);
    }
}

#[tokio::test]
async fn a_claim_after_one_with_spare_capacity_serves_a_run() {
    let database = database(0).await;
    let instructions: Vec<String> = (1..=16).map(|number| format!("ok-{number}")).collect();
    enqueue_stream(&database, &instructions.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let rail = Arc::new(ScriptedRail::default());
    run_until(&database, Arc::clone(&rail), "select count(*) = 0 from symphony.payment_outbox_pending").await;
    assert_eq!(*rail.received.lock().unwrap(), instructions);
    let root = database.connect().await.unwrap();
    let claims = "select count(distinct claimed_at) from symphony.payment_outbox_attempts";
    assert_eq!(
        root.query_one(claims, &[]).await.unwrap().get::<_, i64>(0),
        2,
        "the first, and a run of the others"
    );
}

#[tokio::test]
async fn a_run_stops_when_an_outcome_of_it_cannot_be_recorded() {
    let database = database(0).await;
    let rail = Arc::new(ScriptedRail::default());
    let rails: BTreeMap<String, Arc<dyn Rail>> = BTreeMap::from([("sepa".to_owned(), Arc::clone(&rail) as _)]);
    let lane = PaymentLane::new(Arc::new(target(&database).await), "worker-1".into(), LEASE, rails);
    let jobs = claim_run(&lane, &database, &["ok-1", "ok-2", "ok-3"]).await;
    let [mut first, mut second, mut third] = <[_; 3]>::try_from(jobs).unwrap();
    let lease = lane.lease(&first);
    assert!(lane.wait_for_turn(&mut first).await);
    let sent = lane.dispatch(first, held()).await;
    // The lease expires, and another worker takes the row.
    let root = database.connect().await.unwrap();
    root.batch_execute(
        "update symphony.payment_outbox_pending set lease_expires_at = now() where sequence_id = 1",
    )
    .await
    .unwrap();
    let ended = lane.complete(&[Arc::new(Completion { lease, outcome: sent.outcome })]).await.unwrap();
    assert_eq!(ended, [CompletionResult::LeaseLost]);
    assert!(!lane.wait_for_turn(&mut second).await, "its turn had come, but the row before it is pending again");
    drop(second);
    assert!(!lane.wait_for_turn(&mut third).await);
    assert_eq!(*rail.received.lock().unwrap(), ["ok-1"]);
}

#[tokio::test]
async fn a_follower_does_not_go_when_the_lease_before_it_is_about_to_expire() {
    let database = database(0).await;
    let rails: BTreeMap<String, Arc<dyn Rail>> =
        BTreeMap::from([("sepa".to_owned(), Arc::new(ScriptedRail::default()) as _)]);
    let lane = PaymentLane::new(Arc::new(target(&database).await), "worker-1".into(), LEASE, rails);
    let jobs = claim_run(&lane, &database, &["ok-1", "ok-2"]).await;
    let [mut first, mut second] = <[_; 2]>::try_from(jobs).unwrap();
    assert!(lane.wait_for_turn(&mut first).await);
    lane.dispatch(first, LeaseWatch::new(Instant::now(), Duration::from_secs(3)).1).await;
    assert!(!lane.wait_for_turn(&mut second).await);
}
