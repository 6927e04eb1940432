//! A claimed entry and its transitions: what each does, and how each refusal differs.

use symphony_db::error::{CompleteError, DatabaseError};
use symphony_db::metadata::{Status, reader, worker};

use crate::fixture::{Fixture, reason};

#[tokio::test]
async fn a_published_entry_is_finished() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(3).await;
    let id = claimed.id();
    claimed.published(&fixture.login("symphony_executor").await).await.unwrap();
    let state = reader::entry(&fixture.root, id).await.unwrap().unwrap();
    assert_eq!((state.status, state.claimed_by.as_deref()), (Status::Published, Some("worker-1")));
    assert!(state.processed_at.is_some());
    assert!(fixture.claim().await.is_empty());
}

#[tokio::test]
async fn a_failed_entry_comes_back_counted_until_no_retries_are_left() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(2).await;
    let id = claimed.id();
    let failed = claimed.failed(&fixture.root, &reason("mail to ann@example.org bounced")).await.unwrap();
    assert_eq!((failed.id, failed.retry_count), (id, 1));
    assert!(failed.next_retry_at.is_some());
    let state = reader::entry(&fixture.root, id).await.unwrap().unwrap();
    assert_eq!(state.last_error.as_deref(), Some("mail to [e-mail] bounced"));

    fixture.make_due().await;
    let again = fixture.claim().await.remove(0);
    assert_eq!((again.id(), again.retry_count), (id, 1));
    let failed = again.failed(&fixture.root, &reason("again")).await.unwrap();
    assert_eq!((failed.retry_count, failed.next_retry_at), (2, None));
    assert!(fixture.claim().await.is_empty(), "no retries are left");
    failed.dead_letter(&fixture.root, &reason("it is hopeless")).await.unwrap();
    let state = reader::entry(&fixture.root, id).await.unwrap().unwrap();
    assert_eq!((state.status, state.last_error.as_deref()), (Status::Dlq, Some("it is hopeless")));
}

#[tokio::test]
async fn a_claim_is_dead_lettered_only_where_no_retries_are_left() {
    let fixture = Fixture::new().await;
    let claimed = fixture.claimed(2).await;
    let id = claimed.id();
    let error = claimed.dead_letter(&fixture.root, &reason("too early")).await.unwrap_err();
    assert!(
        matches!(&error, CompleteError::InvalidState(report) if report.sqlstate() == Some("P7003")),
        "{error:?}"
    );
    assert!(error.to_string().contains("has retries left"), "{error}");

    let last = fixture.claimed(1).await;
    let last_id = last.id();
    last.dead_letter(&fixture.root, &reason("it is hopeless")).await.unwrap();
    let state = reader::entry(&fixture.root, last_id).await.unwrap().unwrap();
    assert_eq!((state.status, state.retry_count), (Status::Dlq, 1));
    assert_eq!(reader::entry(&fixture.root, id).await.unwrap().unwrap().status, Status::Processing);
}

#[tokio::test]
async fn of_two_workers_the_late_one_changes_nothing() {
    let fixture = Fixture::new().await;
    let mut late = vec![fixture.claimed(9).await];
    let id = late[0].id();
    for _ in 0..2 {
        fixture.expire_claims().await;
        assert_eq!(worker::repair(&fixture.root, 10).await.unwrap().len(), 1);
        fixture.make_due().await;
        late.push(fixture.claim().await.remove(0));
    }
    let holder = late.pop().unwrap();
    let before: String =
        fixture.root.query_one("select o::text from symphony.metadata_outbox o", &[]).await.unwrap().get(0);
    let error = late.remove(0).published(&fixture.root).await.unwrap_err();
    assert!(matches!(&error, CompleteError::LeaseLost(report) if report.sqlstate() == Some("P7002")), "{error:?}");
    let error = late.remove(0).failed(&fixture.root, &reason("late")).await.unwrap_err();
    assert!(matches!(error, CompleteError::LeaseLost(_)), "{error:?}");
    let after: String =
        fixture.root.query_one("select o::text from symphony.metadata_outbox o", &[]).await.unwrap().get(0);
    assert_eq!(before, after);
    holder.published(&fixture.root).await.unwrap();
    assert_eq!(reader::entry(&fixture.root, id).await.unwrap().unwrap().status, Status::Published);
}

#[tokio::test]
async fn missing_ended_unclaimed_and_held_are_told_apart() {
    let fixture = Fixture::new().await;
    let id = "0190c0de-0000-7000-8000-000000000000".parse().unwrap();
    let error = worker::dead_letter(&fixture.root, id, &reason("x")).await.unwrap_err();
    assert!(matches!(&error, CompleteError::NotFound(report) if report.sqlstate() == Some("P0002")), "{error:?}");

    let pending = fixture.create(1).await;
    let error = worker::dead_letter(&fixture.root, pending, &reason("x")).await.unwrap_err();
    assert!(matches!(error, CompleteError::InvalidState(_)), "{error:?}");
    assert!(error.to_string().contains("is PENDING"), "{error}");

    let held = fixture.claim().await.remove(0);
    let error = worker::dead_letter(&fixture.root, pending, &reason("x")).await.unwrap_err();
    assert!(matches!(error, CompleteError::LeaseLost(_)), "{error:?}");

    held.published(&fixture.root).await.unwrap();
    let error = worker::dead_letter(&fixture.root, pending, &reason("x")).await.unwrap_err();
    assert!(matches!(error, CompleteError::AlreadyTerminal(_)), "{error:?}");
    assert!(error.to_string().contains("has ended as PUBLISHED"), "{error}");
}

#[tokio::test]
async fn an_operator_gives_up_what_failed_and_a_reader_gives_up_nothing() {
    let fixture = Fixture::new().await;
    let failed = fixture.claimed(9).await.failed(&fixture.root, &reason("away")).await.unwrap();
    let reader = fixture.login("symphony_readonly").await;
    let error = worker::dead_letter(&reader, failed.id, &reason("hopeless")).await.unwrap_err();
    assert!(matches!(error, CompleteError::Database(DatabaseError::MissingRole { .. })), "{error:?}");
    let operator = fixture.login("symphony_operator").await;
    worker::dead_letter(&operator, failed.id, &reason("hopeless")).await.unwrap();
    assert_eq!(reader::entry(&operator, failed.id).await.unwrap().unwrap().status, Status::Dlq);
}
