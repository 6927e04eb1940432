//! What a worker may rely on beyond single moves: batches, repair, and when to come back.

use symphony_db::error::CompleteError;
use symphony_db::metadata::worker::{Completion, Outcome, complete_batch, next_due, repair};
use symphony_db::metadata::{Status, reader};

use crate::fixture::{Fixture, reason};

#[tokio::test]
async fn in_a_batch_one_refusal_undoes_nothing_else() {
    let fixture = Fixture::new().await;
    let last = fixture.claimed(1).await;
    let late = {
        let late = fixture.claimed(3).await;
        let lease = late.lease().clone();
        late.published(&fixture.root).await.unwrap();
        lease
    };
    let (one, two, three) = (fixture.claimed(3).await, fixture.claimed(3).await, fixture.claimed(3).await);
    let away = || Outcome::Failed(reason("the store is away"));
    let completions = [
        (last.lease(), away()),
        (&late, away()),
        (one.lease(), Outcome::Published),
        (two.lease(), away()),
        (two.lease(), Outcome::Published),
        (&late, Outcome::Published),
        (three.lease(), Outcome::Published),
        (three.lease(), Outcome::Published),
        (three.lease(), away()),
    ]
    .map(|(lease, outcome)| Completion { lease: lease.clone(), outcome });
    let executor = fixture.login("symphony_executor").await;
    let answers = complete_batch(&executor, &completions).await.unwrap();
    let results: Vec<_> = answers.iter().map(|answer| (answer.status, answer.refused.is_none())).collect();
    assert_eq!(
        results,
        [
            (Some(Status::Dlq), true),
            (Some(Status::Published), false),
            (Some(Status::Published), true),
            (Some(Status::Failed), true),
            (Some(Status::Failed), false),
            (Some(Status::Published), false),
            (Some(Status::Published), true),
            (Some(Status::Published), false),
            (Some(Status::Published), false),
        ]
    );
    for ended in [1, 5, 7, 8] {
        assert!(matches!(answers[ended].refused, Some(CompleteError::AlreadyTerminal(_))), "{:?}", answers[ended]);
    }
    assert!(matches!(answers[4].refused, Some(CompleteError::InvalidState(_))));
    assert_eq!((answers[3].next_retry_at.is_some(), answers[0].next_retry_at), (true, None));
}

#[tokio::test]
async fn a_batch_without_a_row_is_refused_as_a_whole() {
    let fixture = Fixture::new().await;
    let error = complete_batch(&fixture.root, &[]).await.unwrap_err();
    assert!(matches!(error, CompleteError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn repair_tells_what_is_tried_again_and_what_is_dead() {
    let fixture = Fixture::new().await;
    let (again, dead) = (fixture.claimed(2).await.id(), fixture.claimed(1).await.id());
    let executor = fixture.login("symphony_executor").await;
    assert!(repair(&executor, 100).await.unwrap().is_empty(), "no claim is too old");
    fixture.expire_claims().await;
    fixture.claimed(2).await;
    let mut repaired = repair(&executor, 100).await.unwrap();
    repaired.sort_by_key(|repaired| repaired.status != Status::Failed);
    let results: Vec<_> = repaired.iter().map(|r| (r.id, r.status, r.lost_worker.clone())).collect();
    assert_eq!(
        results,
        [(again, Status::Failed, Some("worker-1".into())), (dead, Status::Dlq, Some("worker-1".into()))]
    );
    let state = reader::entry(&fixture.root, again).await.unwrap().unwrap();
    assert_eq!((state.retry_count, state.last_error.as_deref()), (1, Some("LEASE_EXPIRED")));
}

#[tokio::test]
async fn the_next_due_is_that_of_what_failed_and_has_retries_left() {
    let fixture = Fixture::new().await;
    let executor = fixture.login("symphony_executor").await;
    fixture.create(1).await;
    assert_eq!(next_due(&executor).await.unwrap(), None, "what is due already does not count");
    for held in fixture.claim().await {
        held.failed(&fixture.root, &reason("away")).await.unwrap();
    }
    let hour =
        "update symphony.metadata_outbox set next_retry_at = now() + interval '1 hour' where status = 'FAILED'";
    fixture.root.batch_execute(hour).await.unwrap();
    let due = next_due(&executor).await.unwrap().unwrap();
    assert!((3500..=3600).contains(&due.as_secs()), "{due:?}");
    fixture.make_due().await;
    assert_eq!(next_due(&executor).await.unwrap(), None);
}
