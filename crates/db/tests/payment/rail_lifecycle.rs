//! A rail from its registration to its retirement, and back.

use symphony_client::error::EnqueueError;
use symphony_client::payment::{Instruction, tokio_postgres as producer};
use symphony_db::error::OperateError;
use symphony_db::payment::operator::{pause, redrive, register_rail, resolve, retire, set_rail};
use symphony_db::payment::worker::complete;
use symphony_db::payment::{OperationKind, RailPolicy, Resolution, reader};

use crate::fixture::{AUDIT, Fixture, RAIL, changed, completion, dispatched, failed, instruction, worker};

const TYPO: &str = "sepaa";

fn on(rail: &str, number: u32) -> Instruction {
    changed(instruction(number), |it| it.rail_type = rail.to_owned())
}

/// The kinds of operations on a rail, oldest first.
async fn operations(fixture: &Fixture, rail: &str) -> Vec<OperationKind> {
    let sql =
        "select operation from symphony.payment_outbox_operations where rail_type = $1 order by operation_id";
    let rows = fixture.root.query(sql, &[&rail]).await.unwrap();
    rows.iter().map(|row| row.get::<_, String>(0).parse().unwrap()).collect()
}

#[tokio::test]
async fn a_mistyped_rail_is_not_registered_by_setting_its_policy() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let error = set_rail(&operator, TYPO, &RailPolicy::default(), AUDIT).await.unwrap_err();
    let OperateError::UnknownRail(report) = &error else { panic!("{error:?}") };
    assert_eq!(report.sqlstate(), Some("P7006"));
    assert!(report.hint().unwrap().contains("register_payment_rail"), "{report:?}");
    assert!(reader::rails(&operator).await.unwrap().iter().all(|rail| rail.rail_type != TYPO));
    assert!(operations(&fixture, TYPO).await.is_empty());
}

#[tokio::test]
async fn a_rail_that_is_registered_is_not_registered_again() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let policy = RailPolicy { max_attempts: Some(3), ..RailPolicy::default() };
    let error = register_rail(&operator, RAIL, &policy, AUDIT).await.unwrap_err();
    assert!(
        matches!(&error, OperateError::InvalidState(report) if report.hint().unwrap().contains("set_payment_rail"))
    );
    assert_eq!(reader::rails(&operator).await.unwrap()[0].max_attempts, 20);
}

#[tokio::test]
async fn a_rail_without_pending_payments_can_be_retired_and_registered_again() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let ingest = fixture.login("symphony_ingest").await;
    let policy = RailPolicy { max_attempts: Some(3), ..RailPolicy::default() };
    register_rail(&operator, TYPO, &policy, AUDIT).await.unwrap();
    producer::enqueue(&ingest, &on(TYPO, 1)).await.unwrap();

    let error = retire(&operator, TYPO, AUDIT).await.unwrap_err();
    let OperateError::InvalidState(report) = &error else { panic!("{error:?}") };
    assert!(report.message().contains("1 pending payments: 1 due, 0 leased, 0 scheduled"), "{report:?}");
    let claimed = fixture.claim().await.remove(0);
    let error = retire(&operator, TYPO, AUDIT).await.unwrap_err();
    assert!(matches!(&error, OperateError::InvalidState(report) if report.message().contains("1 leased")));
    complete(&fixture.root, &worker(), &completion(&claimed, failed("AC04"))).await.unwrap();

    let retired = retire(&operator, TYPO, AUDIT).await.unwrap();
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
        set_rail(&operator, TYPO, &policy, AUDIT).await.unwrap_err(),
        pause(&operator, TYPO, AUDIT).await.unwrap_err(),
        retire(&operator, TYPO, AUDIT).await.unwrap_err(),
        redrive(&operator, claimed.outbox_id, AUDIT).await.unwrap_err(),
    ] {
        let OperateError::UnknownRail(report) = &error else { panic!("{error:?}") };
        assert!(report.hint().unwrap().contains("Register it again"), "{report:?}");
    }
    // Its history stays, and what failed on it is counted.
    assert_eq!(reader::timeline(&operator, claimed.outbox_id).await.unwrap().len(), 3);
    let status = reader::status(&operator).await.unwrap();
    assert_eq!(status.rails.iter().map(|rail| rail.dlq).sum::<i64>(), 1);
    resolve(&operator, claimed.outbox_id, Resolution::NotPaid, AUDIT).await.unwrap();

    let again = register_rail(&operator, TYPO, &RailPolicy::default(), AUDIT).await.unwrap();
    assert!(again.is_registered());
    assert_eq!(again.max_attempts, 20, "it starts from the defaults");
    redrive(&operator, claimed.outbox_id, AUDIT).await.unwrap();
    let kinds = [
        OperationKind::RegisterRail,
        OperationKind::RetireRail,
        OperationKind::Resolve,
        OperationKind::RegisterRail,
        OperationKind::Redrive,
    ];
    assert_eq!(operations(&fixture, TYPO).await, kinds);
}

#[tokio::test]
async fn an_enqueue_that_commits_after_its_rail_was_retired_is_not_lost() {
    let fixture = Fixture::new().await;
    let operator = fixture.login("symphony_operator").await;
    let mut ingest = fixture.login("symphony_ingest").await;
    let late = ingest.transaction().await.unwrap();
    producer::enqueue(&late, &instruction(1)).await.unwrap();
    // It cannot be seen yet.
    retire(&operator, RAIL, AUDIT).await.unwrap();
    late.commit().await.unwrap();

    let status = reader::status(&operator).await.unwrap();
    assert_eq!((status.rails[0].rail_type.as_str(), status.rails[0].due_unleased_count), (RAIL, 1));
    assert_eq!(reader::backlog(&operator).await.unwrap().rails[0].due, 1);
    let claimed = fixture.claim().await.remove(0);
    complete(&fixture.root, &worker(), &completion(&claimed, dispatched())).await.unwrap();
    assert!(reader::backlog(&operator).await.unwrap().rails.is_empty());
}

#[tokio::test]
async fn a_rail_is_never_deleted() {
    let fixture = Fixture::new().await;
    let error = fixture.root.execute("delete from symphony.payment_rails", &[]).await.unwrap_err();
    let error = error.as_db_error().unwrap();
    assert_eq!((error.code().code(), error.message().contains("retire it")), ("P0001", true), "{error}");
}
