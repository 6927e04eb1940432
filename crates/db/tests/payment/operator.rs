//! What an operator may rely on.

use symphony_db::OutboxId;
use symphony_db::error::{DatabaseError, OperateError};
use symphony_db::payment::operator::{Repaired, pause, redrive, register_rail, repair, resolve, resume, set_rail};
use symphony_db::payment::worker::complete;
use symphony_db::payment::{
    Change, OUTCOME_UNKNOWN, OnEpochChange, OnFailure, OnUnknown, OperationKind, RailPolicy, Resolution, reader,
};

use crate::fixture::{AUDIT, Fixture, RAIL, completion, failed, worker};

async fn failure(fixture: &Fixture, code: &str) -> OutboxId {
    let claimed = fixture.claimed(1).await;
    complete(&fixture.root, &worker(), &completion(&claimed, failed(code))).await.unwrap();
    claimed.outbox_id
}

#[tokio::test]
async fn a_failure_is_redriven_as_a_new_outbox_once() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let old = failure(&fixture, "NO_ACCOUNT").await;

    let redriven = redrive(&operator, old, AUDIT).await.unwrap();
    assert_ne!(redriven.outbox_id, old);
    assert_eq!(redriven.sequence_id, 2);
    assert_eq!(fixture.claim().await[0].idempotency_key, "key-1");

    let error = redrive(&operator, old, AUDIT).await.unwrap_err();
    assert!(matches!(error, OperateError::InvalidState(_)), "{error:?}");
}

#[tokio::test]
async fn an_unknown_outcome_is_redriven_only_after_a_person_found_out() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let unknown = failure(&fixture, OUTCOME_UNKNOWN).await;

    let error = redrive(&operator, unknown, AUDIT).await.unwrap_err();
    let OperateError::InvalidState(report) = &error else { panic!("{error:?}") };
    assert!(report.hint().unwrap().contains("resolve_payment_outbox"), "{error}");

    resolve(&operator, unknown, Resolution::NotPaid, AUDIT).await.unwrap();
    redrive(&operator, unknown, AUDIT).await.unwrap();
}

/// While a pause waits, every claim waits behind it: it may not do so for long.
#[tokio::test]
async fn a_pause_does_not_wait_for_ever_for_a_worker_that_left_its_transaction_open() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let forgetful = fixture.login("symphony_executor").await;
    forgetful.batch_execute("begin; select from symphony.claim_outbox_batch(1, 'worker-1', 30)").await.unwrap();

    let error = pause(&operator, RAIL, AUDIT).await.unwrap_err();
    let OperateError::Database(DatabaseError::LockHeld(report)) = &error else { panic!("{error:?}") };
    assert_eq!(report.sqlstate(), Some("55P03"));
    assert!(report.hint().unwrap().contains("pg_stat_activity"), "{error}");
    assert!(error.to_string().contains(report.hint().unwrap().trim_end_matches('.')), "{error}");

    forgetful.batch_execute("commit").await.unwrap();
    assert!(pause(&operator, RAIL, AUDIT).await.unwrap().paused);
}

#[tokio::test]
async fn what_was_paid_is_never_redriven() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let unknown = failure(&fixture, OUTCOME_UNKNOWN).await;
    resolve(&operator, unknown, Resolution::Paid, AUDIT).await.unwrap();
    let error = redrive(&operator, unknown, AUDIT).await.unwrap_err();
    assert!(matches!(error, OperateError::InvalidState(_)), "{error:?}");
}

#[tokio::test]
async fn a_policy_sets_what_it_names_clears_what_it_clears_and_leaves_the_rest() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let policy = RailPolicy {
        max_attempts: Some(3),
        backoff_base_seconds: Some(2),
        backoff_cap_seconds: Some(60),
        ordered: Some(true),
        max_in_flight: Change::Set(8),
        on_unknown: Some(OnUnknown::Stop),
        key_memory_seconds: Change::Set(86_400),
        on_epoch_change: Some(OnEpochChange::Hold),
        publish_outcomes: Some(true),
        on_failure: Some(OnFailure::Hold),
        max_per_second: Change::Set(50),
        confirm_every_seconds: Some(60),
    };
    let set = register_rail(&operator, "instant", &policy, AUDIT).await.unwrap();
    assert_eq!((set.max_attempts, set.backoff_base_seconds, set.backoff_cap_seconds), (3, 2, 60));
    assert_eq!((set.ordered, set.paused, set.on_unknown), (true, false, OnUnknown::Stop));
    assert_eq!((set.max_in_flight, set.key_memory_seconds), (Some(8), Some(86_400)));
    assert_eq!((set.publish_outcomes, set.on_failure, set.max_per_second), (true, OnFailure::Hold, Some(50)));
    assert_eq!((set.rail_type.as_str(), set.updated_by.as_str()), ("instant", "Ada"));

    let cleared = RailPolicy { max_in_flight: Change::Clear, ..RailPolicy::default() };
    let cleared = set_rail(&operator, "instant", &cleared, AUDIT).await.unwrap();
    assert_eq!((cleared.max_in_flight, cleared.key_memory_seconds), (None, Some(86_400)));
    assert_eq!((cleared.max_attempts, cleared.ordered), (3, true));
}

#[tokio::test]
async fn a_paused_rail_hands_out_nothing_until_it_is_resumed() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    fixture.enqueue(1).await;
    assert!(pause(&operator, RAIL, AUDIT).await.unwrap().paused);
    assert!(fixture.claim().await.is_empty());
    assert!(!resume(&operator, RAIL, AUDIT).await.unwrap().paused);
    assert_eq!(fixture.claim().await.len(), 1);
}

#[tokio::test]
async fn expired_leases_of_a_rail_are_repaired_by_hand_and_the_log_says_who() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let claimed = fixture.claimed(1).await;
    assert_eq!(repair(&operator, RAIL, AUDIT).await.unwrap(), Repaired { requeued: 0, failed: 0 }, "it is held");
    fixture.let_leases_expire().await;
    assert_eq!(repair(&operator, RAIL, AUDIT).await.unwrap(), Repaired { requeued: 1, failed: 0 });
    assert_eq!(reader::pending(&operator, claimed.outbox_id).await.unwrap().unwrap().attempt_count, 1);

    let log = reader::operations_log(&operator, None, 2).await.unwrap();
    assert_eq!(log.iter().map(|done| done.operation).collect::<Vec<_>>(), [OperationKind::Repair; 2]);
    assert_eq!((log[0].actor.as_str(), log[0].outbox_id), (AUDIT.actor, None));
    let refused = repair(&operator, "elsewhere", AUDIT).await.unwrap_err();
    assert!(matches!(refused, OperateError::UnknownRail(_)), "{refused}");
}
