//! What a worker may rely on.

use symphony_db::BatchSize;
use symphony_db::error::{ClaimError, CompleteError, DatabaseError};
use symphony_db::event::EventId;
use symphony_db::event::worker::{Outcome, claim, claim_in_order, complete};

use crate::fixture::{Fixture, OUTBOX};

#[tokio::test]
async fn a_delivered_event_is_finished_and_a_failed_one_comes_back_counted() {
    let fixture = Fixture::new().await;
    let (one, two) = (fixture.publish(1).await, fixture.publish(2).await);
    let executor = fixture.login("symphony_executor").await;
    let held = claim(&executor, &"worker-1".into(), BatchSize::MAX).await.unwrap();
    assert_eq!(held.events.iter().map(|event| event.id).collect::<Vec<_>>(), [one, two]);

    complete(&executor, &held.processor, one, &Outcome::Delivered).await.unwrap();
    let failed = Outcome::Failed { error: Some("the broker is down".to_owned()) };
    complete(&executor, &held.processor, two, &failed).await.unwrap();
    assert!(fixture.claim().await.events.is_empty(), "one is finished, the other is not due");

    fixture
        .root
        .batch_execute("update m10_recovery.outbox set process_after = now() where processed_at is null")
        .await
        .unwrap();
    let held = fixture.claim().await;
    assert_eq!(held.events.iter().map(|event| (event.id, event.retry_count)).collect::<Vec<_>>(), [(two, 1)]);
}

#[tokio::test]
async fn a_worker_that_is_late_does_not_finish_what_it_claimed_again() {
    let fixture = Fixture::new().await;
    let id = fixture.publish(1).await;
    let (first, second) = {
        let first = fixture.claim().await;
        fixture.expire_claims().await;
        (first, fixture.claim().await)
    };
    assert_eq!(second.events[0].id, id);
    for outcome in [Outcome::Delivered, Outcome::Failed { error: None }] {
        let error = complete(&fixture.root, &first.processor, id, &outcome).await.unwrap_err();
        assert!(
            matches!(&error, CompleteError::LeaseLost(report) if report.sqlstate() == Some("P7002")),
            "{error:?}"
        );
    }
    complete(&fixture.root, &second.processor, id, &Outcome::Delivered).await.unwrap();
    assert_eq!(fixture.count(&format!("{OUTBOX} where processed_at is not null")).await, 1);
    let error = complete(&fixture.root, &second.processor, id, &Outcome::Delivered).await.unwrap_err();
    assert!(error.to_string().contains("is processed already"), "{error}");
}

#[tokio::test]
async fn a_late_worker_completes_what_no_other_took_over() {
    let fixture = Fixture::new().await;
    let id = fixture.publish(1).await;
    let held = fixture.claim().await;
    fixture.expire_claims().await;
    complete(&fixture.root, &held.processor, id, &Outcome::Delivered).await.unwrap();
}

#[tokio::test]
async fn an_event_that_never_was_is_a_lost_claim() {
    let fixture = Fixture::new().await;
    let held = fixture.claim().await;
    let error = complete(&fixture.root, &held.processor, EventId(1), &Outcome::Delivered).await.unwrap_err();
    assert!(matches!(error, CompleteError::LeaseLost(_)), "{error:?}");
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let fixture = Fixture::new().await;
    let ingest = fixture.login("symphony_ingest").await;
    let error = claim(&ingest, &"worker-1".into(), BatchSize::ONE).await.unwrap_err();
    assert!(
        matches!(error, ClaimError::Database(DatabaseError::MissingRole { role: "symphony_executor", .. })),
        "{error:?}"
    );
    let held = fixture.claim().await;
    let error = complete(&ingest, &held.processor, EventId(1), &Outcome::Delivered).await.unwrap_err();
    assert!(
        matches!(error, CompleteError::Database(DatabaseError::MissingRole { role: "symphony_executor", .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_name_that_the_database_cannot_hold_is_an_invalid_argument() {
    let fixture = Fixture::new().await;
    let error = claim(&fixture.root, &"a\0b".into(), BatchSize::ONE).await.unwrap_err();
    assert!(matches!(error, ClaimError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn a_claim_tells_how_many_claims_of_others_it_took_over() {
    for in_order in [false, true] {
        let fixture = Fixture::new().await;
        for number in 1..=3 {
            fixture.publish(number).await;
        }
        let take = async || {
            let (client, worker) = (&fixture.root, "worker-2".into());
            if in_order {
                claim_in_order(client, &worker, BatchSize::MAX, 9).await.unwrap()
            } else {
                claim(client, &worker, BatchSize::MAX).await.unwrap()
            }
        };
        assert_eq!((fixture.claim().await.events.len(), take().await.taken_over), (3, 0));
        fixture.expire_claims().await;
        fixture.publish(4).await;
        let held = take().await;
        assert_eq!((held.events.len(), held.taken_over), (4, 3), "in order: {in_order}");
        assert_eq!(take().await.taken_over, 0);
        // Several claims in one transaction are told apart.
        fixture.expire_claims().await;
        fixture.root.batch_execute("begin").await.unwrap();
        assert_eq!((take().await.taken_over, take().await.taken_over), (4, 0));
        fixture.root.batch_execute("rollback").await.unwrap();
    }
}
