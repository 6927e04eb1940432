//! A claimed entry and its moves: what each does, and how each refusal is told from the others.

use symphony_outbox::error::Fault;
use symphony_outbox::error::metadata::MoveError;
use symphony_outbox::metadata::{Status, reading, worker};

use crate::stage::{Stage, why};

#[tokio::test]
async fn a_published_entry_is_finished() {
    let stage = Stage::set().await;
    let claimed = stage.claimed(3).await;
    let id = claimed.id();
    claimed.published(&stage.login("symphony_executor").await).await.unwrap();
    let state = reading::entry(&stage.root, id).await.unwrap().unwrap();
    assert_eq!((state.status, state.claimed_by.as_deref()), (Status::Published, Some("worker-1")));
    assert!(state.processed_at.is_some());
    assert!(stage.claim().await.is_empty());
}

#[tokio::test]
async fn a_failed_entry_comes_back_counted_until_no_retries_are_left() {
    let stage = Stage::set().await;
    let claimed = stage.claimed(2).await;
    let id = claimed.id();
    let failed = claimed.failed(&stage.root, &why("mail to ann@example.org bounced")).await.unwrap();
    assert_eq!((failed.id, failed.retry_count), (id, 1));
    assert!(failed.next_retry_at.is_some());
    let state = reading::entry(&stage.root, id).await.unwrap().unwrap();
    assert_eq!(state.last_error.as_deref(), Some("mail to [e-mail] bounced"));

    stage.make_due().await;
    let again = stage.claim().await.remove(0);
    assert_eq!((again.id(), again.retry_count), (id, 1));
    let failed = again.failed(&stage.root, &why("again")).await.unwrap();
    assert_eq!((failed.retry_count, failed.next_retry_at), (2, None));
    assert!(stage.claim().await.is_empty(), "no retries are left");
    failed.dead_letter(&stage.root, &why("it is hopeless")).await.unwrap();
    let state = reading::entry(&stage.root, id).await.unwrap().unwrap();
    assert_eq!((state.status, state.last_error.as_deref()), (Status::Dlq, Some("it is hopeless")));
}

#[tokio::test]
async fn a_claim_is_dead_lettered_only_where_no_retries_are_left() {
    let stage = Stage::set().await;
    let claimed = stage.claimed(2).await;
    let id = claimed.id();
    let error = claimed.dead_letter(&stage.root, &why("too early")).await.unwrap_err();
    assert!(matches!(&error, MoveError::WrongStatus(report) if report.sqlstate() == Some("P7003")), "{error:?}");
    assert!(error.to_string().contains("has retries left"), "{error}");

    let last = stage.claimed(1).await;
    let last_id = last.id();
    last.dead_letter(&stage.root, &why("it is hopeless")).await.unwrap();
    let state = reading::entry(&stage.root, last_id).await.unwrap().unwrap();
    assert_eq!((state.status, state.retry_count), (Status::Dlq, 1));
    assert_eq!(reading::entry(&stage.root, id).await.unwrap().unwrap().status, Status::Processing);
}

#[tokio::test]
async fn of_two_workers_the_late_one_changes_nothing() {
    let stage = Stage::set().await;
    let mut late = vec![stage.claimed(9).await];
    let id = late[0].id();
    for _ in 0..2 {
        stage.let_claims_age().await;
        assert_eq!(worker::repair(&stage.root, 10).await.unwrap().len(), 1);
        stage.make_due().await;
        late.push(stage.claim().await.remove(0));
    }
    let holder = late.pop().unwrap();
    let before: String =
        stage.root.query_one("select o::text from symphony.metadata_outbox o", &[]).await.unwrap().get(0);
    let error = late.remove(0).published(&stage.root).await.unwrap_err();
    assert!(matches!(&error, MoveError::ClaimLost(report) if report.sqlstate() == Some("P7002")), "{error:?}");
    let error = late.remove(0).failed(&stage.root, &why("late")).await.unwrap_err();
    assert!(matches!(error, MoveError::ClaimLost(_)), "{error:?}");
    let after: String =
        stage.root.query_one("select o::text from symphony.metadata_outbox o", &[]).await.unwrap().get(0);
    assert_eq!(before, after);
    holder.published(&stage.root).await.unwrap();
    assert_eq!(reading::entry(&stage.root, id).await.unwrap().unwrap().status, Status::Published);
}

#[tokio::test]
async fn missing_ended_unclaimed_and_held_are_told_apart() {
    let stage = Stage::set().await;
    let id = "0190c0de-0000-7000-8000-000000000000".parse().unwrap();
    let error = worker::dead_letter(&stage.root, id, &why("x")).await.unwrap_err();
    assert!(matches!(&error, MoveError::Missing(report) if report.sqlstate() == Some("P0002")), "{error:?}");

    let pending = stage.create(1).await;
    let error = worker::dead_letter(&stage.root, pending, &why("x")).await.unwrap_err();
    assert!(matches!(error, MoveError::WrongStatus(_)), "{error:?}");
    assert!(error.to_string().contains("is PENDING"), "{error}");

    let held = stage.claim().await.remove(0);
    let error = worker::dead_letter(&stage.root, pending, &why("x")).await.unwrap_err();
    assert!(matches!(error, MoveError::ClaimLost(_)), "{error:?}");

    held.published(&stage.root).await.unwrap();
    let error = worker::dead_letter(&stage.root, pending, &why("x")).await.unwrap_err();
    assert!(matches!(error, MoveError::AlreadyTerminal(_)), "{error:?}");
    assert!(error.to_string().contains("has ended as PUBLISHED"), "{error}");
}

#[tokio::test]
async fn an_operator_gives_up_what_failed_and_a_reader_gives_up_nothing() {
    let stage = Stage::set().await;
    let failed = stage.claimed(9).await.failed(&stage.root, &why("away")).await.unwrap();
    let reader = stage.login("symphony_readonly").await;
    let error = worker::dead_letter(&reader, failed.id, &why("hopeless")).await.unwrap_err();
    assert!(matches!(error, MoveError::Fault(Fault::MissingRole { .. })), "{error:?}");
    let operator = stage.login("symphony_operator").await;
    worker::dead_letter(&operator, failed.id, &why("hopeless")).await.unwrap();
    assert_eq!(reading::entry(&operator, failed.id).await.unwrap().unwrap().status, Status::Dlq);
}
