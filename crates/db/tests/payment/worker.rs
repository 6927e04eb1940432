//! What a worker may rely on.

use std::time::Duration;

use symphony_db::error::CompleteError;
use symphony_db::payment::worker::{claim, complete, complete_batch, release, renew, repair};
use symphony_db::payment::{AttemptState, Lease, OUTCOME_UNKNOWN, Outcome, RailAnswer};
use symphony_db::{BatchSize, LeaseToken};

use crate::fixture::{Fixture, LEASE, completion, dispatched, failed, instruction, reason, retryable, worker};

#[tokio::test]
async fn a_claim_gives_what_was_enqueued() {
    let fixture = Fixture::new().await;
    let (first, second) = (fixture.enqueue(1).await, fixture.enqueue(2).await);
    let executor = fixture.login("symphony_executor").await;

    let claimed = claim(&executor, &worker(), BatchSize::ONE, LEASE).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let claimed = &claimed[0];
    assert_eq!((claimed.outbox_id, claimed.sequence_id), (first.outbox_id, 1));
    assert_eq!(claimed.instruction_id, "instruction-1");
    assert_eq!(claimed.participant_id, "participant-1");
    assert_eq!(claimed.idempotency_key, "key-1");
    assert_eq!(claimed.rail_type, "sepa");
    assert_eq!((claimed.attempt_count, claimed.outcome_unknown), (0, false));
    assert_eq!(
        claimed.payload.parse::<serde_json::Value>().unwrap(),
        instruction(1).payload.parse::<serde_json::Value>().unwrap()
    );
    assert_eq!(fixture.claim().await[0].outbox_id, second.outbox_id);
    assert!(fixture.claim().await.is_empty());
}

#[tokio::test]
async fn a_claim_in_a_log_shows_neither_its_payload_nor_its_token() {
    let fixture = Fixture::new().await;
    let shown = format!("{:?}", fixture.claimed(1).await);
    assert!(shown.contains("instruction-1") && shown.contains("LeaseToken(..)"), "{shown}");
    assert!(!shown.contains("amount"), "{shown}");
}

#[tokio::test]
async fn each_outcome_is_recorded_as_it_was_given() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;

    let claimed = fixture.claimed(1).await;
    let completed = complete(&executor, &worker(), &completion(&claimed, dispatched())).await.unwrap();
    assert_eq!((completed.attempt_no, completed.state), (1, AttemptState::Dispatched));
    assert_eq!(completed.next_attempt_at, None);

    let claimed = fixture.claimed(2).await;
    let completed = complete(&executor, &worker(), &completion(&claimed, failed("NO_ACCOUNT"))).await.unwrap();
    assert_eq!((completed.state, completed.next_attempt_at), (AttemptState::Failed, None));

    let claimed = fixture.claimed(3).await;
    let completed = complete(&executor, &worker(), &completion(&claimed, retryable(None))).await.unwrap();
    assert_eq!(completed.state, AttemptState::Retryable);
    assert!(completed.next_attempt_at.is_some());

    let row = fixture
        .root
        .query_one(
            "select rail_reference, rail_code, latency_ms, worker_id
             from symphony.payment_outbox_attempts where state = 'DISPATCHED'",
            &[],
        )
        .await
        .unwrap();
    assert_eq!((row.get(0), row.get(1), row.get(2), row.get(3)), ("ref-1", "ACCP", 42, "worker-1"));
}

#[tokio::test]
async fn a_part_of_a_second_of_delay_is_never_cut_off() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    let outcome = retryable(Some(Duration::from_millis(1500)));
    fixture.root.batch_execute("begin").await.unwrap();
    let completed = complete(&fixture.root, &worker(), &completion(&claimed, outcome)).await.unwrap();
    let at: jiff::Timestamp = fixture.root.query_one("select now()", &[]).await.unwrap().get(0);
    fixture.root.batch_execute("commit").await.unwrap();
    assert_eq!(completed.next_attempt_at, Some(at + Duration::from_secs(2)));
}

#[tokio::test]
async fn one_refusal_in_a_batch_leaves_the_other_outcomes_recorded() {
    let fixture = Fixture::new().await;
    for number in 1..=4 {
        fixture.enqueue(number).await;
    }
    let claimed = fixture.claim().await;
    complete(&fixture.root, &worker(), &completion(&claimed[2], dispatched())).await.unwrap();
    let stolen = Lease { outbox_id: claimed[1].outbox_id, token: LeaseToken::from(uuid::Uuid::nil()) };

    let mut batch: Vec<_> = claimed.iter().map(|c| completion(c, dispatched())).collect();
    batch[1].lease = stolen;
    batch[3].outcome = failed("");
    let executor = fixture.login("symphony_executor").await;
    let answers = complete_batch(&executor, &worker(), &batch).await.unwrap();

    assert!(matches!(&answers[0], Ok(done) if done.state == AttemptState::Dispatched), "{answers:?}");
    assert!(matches!(&answers[1], Err(CompleteError::LeaseLost(_))), "{answers:?}");
    assert!(matches!(&answers[2], Err(CompleteError::AlreadyTerminal(_))), "{answers:?}");
    assert!(matches!(&answers[3], Err(CompleteError::InvalidArgument(_))), "{answers:?}");
}

#[tokio::test]
async fn a_batch_records_each_kind_of_outcome() {
    let fixture = Fixture::new().await;
    for number in 1..=3 {
        fixture.enqueue(number).await;
    }
    let outcomes = [dispatched(), failed("NO_ACCOUNT"), retryable(Some(Duration::from_secs(7)))];
    let batch: Vec<_> = fixture.claim().await.iter().zip(outcomes).map(|(c, o)| completion(c, o)).collect();
    let answers = complete_batch(&fixture.root, &worker(), &batch).await.unwrap();
    let states: Vec<_> = answers.into_iter().map(|answer| answer.unwrap().state).collect();
    assert_eq!(states, [AttemptState::Dispatched, AttemptState::Failed, AttemptState::Retryable]);
}

#[tokio::test]
async fn a_batch_of_nothing_is_refused_as_a_whole() {
    let fixture = Fixture::new().await;
    let error = complete_batch(&fixture.root, &worker(), &[]).await.unwrap_err();
    assert!(matches!(error, CompleteError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn a_lease_can_be_prolonged_until_it_is_lost() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    let claimed = fixture.claimed(1).await;
    let renewed = renew(&executor, &worker(), &[claimed.lease()], LEASE * 2).await.unwrap();
    assert_eq!(renewed[0].outbox_id, claimed.outbox_id);
    assert!(renewed[0].lease_expires_at.unwrap() > claimed.lease_expires_at);

    fixture.let_leases_expire().await;
    let renewed = renew(&executor, &worker(), &[claimed.lease()], LEASE).await.unwrap();
    assert_eq!(renewed[0].lease_expires_at, None);
}

/// A worker that claimed its own expired row anew may ask for both leases at once.
#[tokio::test]
async fn a_token_that_was_lost_is_not_confirmed_by_the_one_that_holds() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    let lost = fixture.claimed(1).await;
    fixture.let_leases_expire().await;
    let held = fixture.claim().await.remove(0);
    assert_eq!(held.outbox_id, lost.outbox_id);

    for leases in [[lost.lease(), held.lease()], [held.lease(), lost.lease()]] {
        let renewed = renew(&executor, &worker(), &leases, LEASE).await.unwrap();
        let confirmed: Vec<_> = renewed.iter().map(|lease| lease.lease_expires_at.is_some()).collect();
        assert_eq!(confirmed, leases.each_ref().map(|lease| lease.token == held.lease().token));
    }
    let released = release(&executor, &worker(), &[lost.lease(), held.lease()], None).await.unwrap();
    assert_eq!(released.iter().map(|lease| lease.released).collect::<Vec<_>>(), [false, true]);
}

#[tokio::test]
async fn a_released_lease_is_claimed_again_without_an_attempt() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    let claimed = fixture.claimed(1).await;
    let released = release(&executor, &worker(), &[claimed.lease()], None).await.unwrap();
    assert!(released[0].released);
    assert!(!release(&executor, &worker(), &[claimed.lease()], None).await.unwrap()[0].released);

    let again = fixture.claim().await.remove(0);
    assert_eq!((again.outbox_id, again.attempt_count), (claimed.outbox_id, 0));
    release(&executor, &worker(), &[again.lease()], Some(LEASE)).await.unwrap();
    assert!(fixture.claim().await.is_empty(), "not due before the delay has passed");
}

#[tokio::test]
async fn a_lease_that_ran_out_is_repaired_once_and_names_the_lost_worker() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    let claimed = fixture.claimed(1).await;
    fixture.let_leases_expire().await;

    let repaired = repair(&executor, &"worker-2".into(), BatchSize::MAX).await.unwrap();
    assert_eq!(repaired.len(), 1);
    assert_eq!((repaired[0].outbox_id, repaired[0].attempt_no), (claimed.outbox_id, 1));
    assert_eq!((repaired[0].state, &repaired[0].lost_worker), (AttemptState::ZombieRequeue, &worker()));
    assert!(repaired[0].next_attempt_at.is_some());
    assert!(repair(&executor, &worker(), BatchSize::MAX).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_claim_reports_an_unknown_outcome_of_the_last_attempt() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(1).await;
    let unknown = Outcome::Retryable {
        reason: reason(OUTCOME_UNKNOWN),
        rail: RailAnswer::default(),
        delay: Some(Duration::ZERO),
    };
    complete(&fixture.root, &worker(), &completion(&claimed, unknown)).await.unwrap();
    let again = fixture.claim().await.remove(0);
    assert_eq!((again.attempt_count, again.outcome_unknown), (1, true));
}

#[tokio::test]
async fn the_calls_can_run_in_a_spawned_task() {
    let fixture = Fixture::new().await;
    fixture.enqueue(1).await;
    let executor = fixture.login("symphony_executor").await;
    let task = tokio::spawn(async move {
        let claimed = claim(&executor, &worker(), BatchSize::ONE, LEASE).await.unwrap().remove(0);
        complete(&executor, &worker(), &completion(&claimed, dispatched())).await.unwrap().state
    });
    assert_eq!(task.await.unwrap(), AttemptState::Dispatched);
}
