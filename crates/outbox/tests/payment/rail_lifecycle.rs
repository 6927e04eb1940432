//! A rail from its registration to its retirement, and back.

use symphony_outbox::error::{EnqueueError, OperateError};
use symphony_outbox::payment::operator::{pause, redrive, register_rail, resolve, retire, set_rail};
use symphony_outbox::payment::worker::complete;
use symphony_outbox::payment::{Instruction, OperationKind, RailPolicy, Resolution, producer, reading};

use crate::stage::{RAIL, Stage, WARRANT, completion, dispatched, failed, instruction, worker};

const TYPO: &str = "sepaa";

fn on(rail: &str, number: u32) -> Instruction {
    Instruction { rail_type: rail.to_owned(), ..instruction(number) }
}

/// The kinds of operations on a rail, oldest first.
async fn operations(stage: &Stage, rail: &str) -> Vec<OperationKind> {
    let sql =
        "select operation from symphony.payment_outbox_operations where rail_type = $1 order by operation_id";
    let rows = stage.root.query(sql, &[&rail]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0).parse().unwrap()).collect()
}

#[tokio::test]
async fn a_mistyped_rail_is_not_registered_by_setting_its_policy() {
    let stage = Stage::set().await;
    let operator = stage.login("symphony_operator").await;
    let error = set_rail(&operator, TYPO, &RailPolicy::default(), WARRANT).await.unwrap_err();
    let OperateError::UnknownRail(report) = &error else { panic!("{error:?}") };
    assert_eq!(report.sqlstate(), Some("P7006"));
    assert!(report.hint().unwrap().contains("register_payment_rail"), "{report:?}");
    assert!(reading::rails(&operator).await.unwrap().iter().all(|rail| rail.rail_type != TYPO));
    assert!(operations(&stage, TYPO).await.is_empty());
}

#[tokio::test]
async fn a_rail_that_is_registered_is_not_registered_again() {
    let stage = Stage::set().await;
    let operator = stage.login("symphony_operator").await;
    let policy = RailPolicy { max_attempts: Some(3), ..RailPolicy::default() };
    let error = register_rail(&operator, RAIL, &policy, WARRANT).await.unwrap_err();
    assert!(
        matches!(&error, OperateError::InvalidState(report) if report.hint().unwrap().contains("set_payment_rail"))
    );
    assert_eq!(reading::rails(&operator).await.unwrap()[0].max_attempts, 20);
}

#[tokio::test]
async fn a_rail_without_pending_payments_can_be_retired_and_registered_again() {
    let stage = Stage::set().await;
    let operator = stage.login("symphony_operator").await;
    let ingest = stage.login("symphony_ingest").await;
    let policy = RailPolicy { max_attempts: Some(3), ..RailPolicy::default() };
    register_rail(&operator, TYPO, &policy, WARRANT).await.unwrap();
    producer::enqueue(&ingest, &on(TYPO, 1)).await.unwrap();

    let error = retire(&operator, TYPO, WARRANT).await.unwrap_err();
    let OperateError::InvalidState(report) = &error else { panic!("{error:?}") };
    assert!(report.message().contains("1 pending payments: 1 due, 0 leased, 0 scheduled"), "{report:?}");
    let claimed = stage.claim().await.remove(0);
    let error = retire(&operator, TYPO, WARRANT).await.unwrap_err();
    assert!(matches!(&error, OperateError::InvalidState(report) if report.message().contains("1 leased")));
    complete(&stage.root, &worker(), &completion(&claimed, failed("AC04"))).await.unwrap();

    let retired = retire(&operator, TYPO, WARRANT).await.unwrap();
    assert!(!retired.is_registered());
    // A producer that repeats its call after the retirement gets the answer of the first.
    assert!(producer::enqueue(&ingest, &on(TYPO, 1)).await.unwrap().replayed);
    assert!(producer::enqueue_batch(&ingest, &[on(TYPO, 1)]).await.unwrap()[0].replayed);
    // Nothing new can be enqueued, and nothing changed.
    let error = producer::enqueue(&ingest, &on(TYPO, 2)).await.unwrap_err();
    assert!(matches!(&error, EnqueueError::UnknownRail(_)), "{error:?}");
    let error = producer::enqueue_batch(&ingest, &[on(RAIL, 3), on(TYPO, 4)]).await.unwrap_err();
    assert!(matches!(&error, EnqueueError::UnknownRail(_)), "{error:?}");
    for error in [
        set_rail(&operator, TYPO, &policy, WARRANT).await.unwrap_err(),
        pause(&operator, TYPO, WARRANT).await.unwrap_err(),
        retire(&operator, TYPO, WARRANT).await.unwrap_err(),
        redrive(&operator, claimed.outbox_id, WARRANT).await.unwrap_err(),
    ] {
        let OperateError::UnknownRail(report) = &error else { panic!("{error:?}") };
        assert!(report.hint().unwrap().contains("Register it again"), "{report:?}");
    }
    // Its history stays, and what failed on it is counted.
    assert_eq!(reading::story(&operator, claimed.outbox_id).await.unwrap().len(), 3);
    let status = reading::status(&operator).await.unwrap();
    assert_eq!(status.rails.iter().map(|rail| rail.dlq).sum::<i64>(), 1);
    resolve(&operator, claimed.outbox_id, Resolution::NotPaid, WARRANT).await.unwrap();

    let again = register_rail(&operator, TYPO, &RailPolicy::default(), WARRANT).await.unwrap();
    assert!(again.is_registered());
    assert_eq!(again.max_attempts, 20, "it starts from the defaults");
    redrive(&operator, claimed.outbox_id, WARRANT).await.unwrap();
    let kinds = [
        OperationKind::RegisterRail,
        OperationKind::RetireRail,
        OperationKind::Resolve,
        OperationKind::RegisterRail,
        OperationKind::Redrive,
    ];
    assert_eq!(operations(&stage, TYPO).await, kinds);
}

#[tokio::test]
async fn an_enqueue_that_commits_after_its_rail_was_retired_is_not_lost() {
    let stage = Stage::set().await;
    let operator = stage.login("symphony_operator").await;
    let mut ingest = stage.login("symphony_ingest").await;
    let late = ingest.transaction().await.unwrap();
    producer::enqueue(&late, &instruction(1)).await.unwrap();
    // It cannot be seen yet.
    retire(&operator, RAIL, WARRANT).await.unwrap();
    late.commit().await.unwrap();

    let status = reading::status(&operator).await.unwrap();
    assert_eq!((status.rails[0].rail_type.as_str(), status.rails[0].due_unleased_count), (RAIL, 1));
    assert_eq!(reading::backlog(&operator).await.unwrap().rails[0].due, 1);
    let claimed = stage.claim().await.remove(0);
    complete(&stage.root, &worker(), &completion(&claimed, dispatched())).await.unwrap();
    assert!(reading::backlog(&operator).await.unwrap().rails.is_empty());
}

#[tokio::test]
async fn a_rail_is_never_deleted() {
    let stage = Stage::set().await;
    let error = stage.root.execute("delete from symphony.payment_rails", &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.message().contains("retire it")), ("P0001", true), "{error}");
}
