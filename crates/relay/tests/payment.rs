//! The payment lane on a real PostgreSQL.

#![cfg(test)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use symphony_db::connect::Target;
use symphony_db::payment::RailAnswer;
use symphony_relay::Lane;
use symphony_relay::claim_capacity::ClaimCapacity;
use symphony_relay::lane::{Completion, CompletionResult, DispatchResult, RouteSignal};
use symphony_relay::lease::LeaseWatch;
use symphony_relay::payment::{PaymentLane, PaymentOutcome};
use symphony_relay::rail::{Answer, BoxFuture, Inquiry, Invalid, Payment, Rail};
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::until;
use tokio::net::TcpListener;
use tokio::time::{Instant, timeout};

/// Long enough for a machine that is busy with other tests.
const SOON: Duration = Duration::from_secs(60);
const LEASE: Duration = Duration::from_secs(60);

/// A rail whose outcomes are unknown, or which never answers although it has a timeout.
struct FakeRail {
    answers: bool,
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
        false
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
    lane_of(FakeRail { answers: true }, target, lease)
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
async fn reading_the_policy_from_a_database_that_never_answers_times_out() {
    let database = database(1).await;
    let working = lane(target(&database).await, LEASE);
    let one = ClaimCapacity::new(1, 1);
    let job = working.claim(&one).await.unwrap().jobs.remove(0);
    let lease = working.lease(&job);
    let sent = working.dispatch(job, held()).await;
    let ended = working.complete(&[Arc::new(Completion { lease, outcome: sent.outcome })]).await.unwrap();
    assert_eq!(
        ended,
        [CompletionResult::Recorded { state: "RETRYABLE", retry_scheduled: true, unblocks_rows: false }]
    );
    let root = database.connect().await.unwrap();
    root.batch_execute("update symphony.payment_outbox_pending set next_attempt_at = now()").await.unwrap();
    let job = working.claim(&one).await.unwrap().jobs.remove(0);
    assert!(job.claimed.outcome_unknown);

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
    let lane = lane_of(FakeRail { answers: false }, target(&database).await, LEASE);
    let job = lane.claim(&ClaimCapacity::new(1, 1)).await.unwrap().jobs.remove(0);
    let sent = timeout(SOON, lane.dispatch(job, held())).await.expect("a timeout");
    assert_eq!(sent.signal, RouteSignal::Failing);
    let recorded = format!("{:?}", sent.outcome);
    assert!(recorded.contains("Retryable") && recorded.contains("OUTCOME_UNKNOWN"), "{recorded}");
}

#[tokio::test]
async fn a_connection_error_contains_the_message_of_the_database() {
    let database = database(0).await;
    let lane = lane(target(&database).await.database("no_such_database"), LEASE);
    let error = lane.claim(&ClaimCapacity::new(1, 1)).await.unwrap_err().to_string();
    assert!(error.contains("does not exist"), "{error}");
}
