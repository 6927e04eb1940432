//! What a worker may rely on.

use symphony_outbox::BatchSize;
use symphony_outbox::error::Fault;
use symphony_outbox::error::event::{ClaimError, CompleteError};
use symphony_outbox::event::EventId;
use symphony_outbox::event::worker::{Outcome, claim, claim_in_order, complete};

use crate::stage::{OUTBOX, Stage};

#[tokio::test]
async fn a_delivered_event_is_finished_and_a_failed_one_comes_back_counted() {
    let stage = Stage::set().await;
    let (one, two) = (stage.publish(1).await, stage.publish(2).await);
    let executor = stage.login("symphony_executor").await;
    let held = claim(&executor, &"worker-1".into(), BatchSize::MOST).await.unwrap();
    assert_eq!(held.events.iter().map(|event| event.id).collect::<Vec<_>>(), [one, two]);

    complete(&executor, &held.processor, one, &Outcome::Delivered).await.unwrap();
    let failed = Outcome::Failed { error: Some("the broker is down".to_owned()) };
    complete(&executor, &held.processor, two, &failed).await.unwrap();
    assert!(stage.claim().await.events.is_empty(), "one is finished, the other is not due");

    stage
        .root
        .batch_execute("update m10_recovery.outbox set process_after = now() where processed_at is null")
        .await
        .unwrap();
    let held = stage.claim().await;
    assert_eq!(held.events.iter().map(|event| (event.id, event.retry_count)).collect::<Vec<_>>(), [(two, 1)]);
}

#[tokio::test]
async fn a_worker_that_is_late_does_not_finish_what_it_claimed_again() {
    let stage = Stage::set().await;
    let id = stage.publish(1).await;
    let (first, second) = {
        let first = stage.claim().await;
        stage.let_claims_age().await;
        (first, stage.claim().await)
    };
    assert_eq!(second.events[0].id, id);
    for outcome in [Outcome::Delivered, Outcome::Failed { error: None }] {
        let error = complete(&stage.root, &first.processor, id, &outcome).await.unwrap_err();
        assert!(
            matches!(&error, CompleteError::ClaimLost(report) if report.sqlstate() == Some("P7002")),
            "{error:?}"
        );
    }
    complete(&stage.root, &second.processor, id, &Outcome::Delivered).await.unwrap();
    assert_eq!(stage.count(&format!("{OUTBOX} where processed_at is not null")).await, 1);
    let error = complete(&stage.root, &second.processor, id, &Outcome::Delivered).await.unwrap_err();
    assert!(error.to_string().contains("is processed already"), "{error}");
}

#[tokio::test]
async fn a_holder_that_is_late_finishes_what_nobody_took_over() {
    let stage = Stage::set().await;
    let id = stage.publish(1).await;
    let held = stage.claim().await;
    stage.let_claims_age().await;
    complete(&stage.root, &held.processor, id, &Outcome::Delivered).await.unwrap();
}

#[tokio::test]
async fn an_event_that_never_was_is_a_lost_claim() {
    let stage = Stage::set().await;
    let held = stage.claim().await;
    let error = complete(&stage.root, &held.processor, EventId(1), &Outcome::Delivered).await.unwrap_err();
    assert!(matches!(error, CompleteError::ClaimLost(_)), "{error:?}");
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let stage = Stage::set().await;
    let ingest = stage.login("symphony_ingest").await;
    let error = claim(&ingest, &"worker-1".into(), BatchSize::ONE).await.unwrap_err();
    assert!(matches!(error, ClaimError::Fault(Fault::MissingRole { role: "symphony_executor", .. })), "{error:?}");
    let held = stage.claim().await;
    let error = complete(&ingest, &held.processor, EventId(1), &Outcome::Delivered).await.unwrap_err();
    assert!(
        matches!(error, CompleteError::Fault(Fault::MissingRole { role: "symphony_executor", .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_name_that_the_database_cannot_hold_is_an_invalid_argument() {
    let stage = Stage::set().await;
    let error = claim(&stage.root, &"a\0b".into(), BatchSize::ONE).await.unwrap_err();
    assert!(matches!(error, ClaimError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn a_claim_tells_how_many_claims_of_others_it_took_over() {
    for in_order in [false, true] {
        let stage = Stage::set().await;
        for number in 1..=3 {
            stage.publish(number).await;
        }
        let take = async || {
            let (client, worker) = (&stage.root, "worker-2".into());
            if in_order {
                claim_in_order(client, &worker, BatchSize::MOST, 9).await.unwrap()
            } else {
                claim(client, &worker, BatchSize::MOST).await.unwrap()
            }
        };
        assert_eq!((stage.claim().await.events.len(), take().await.taken_over), (3, 0));
        stage.let_claims_age().await;
        stage.publish(4).await;
        let held = take().await;
        assert_eq!((held.events.len(), held.taken_over), (4, 3), "in order: {in_order}");
        assert_eq!(take().await.taken_over, 0);
        // Several claims in one transaction are told apart.
        stage.let_claims_age().await;
        stage.root.batch_execute("begin").await.unwrap();
        assert_eq!((take().await.taken_over, take().await.taken_over), (4, 0));
        stage.root.batch_execute("rollback").await.unwrap();
    }
}
