//! What a worker may rely on beyond single moves: batches, repair, and when to come back.

use symphony_outbox::error::metadata::MoveError;
use symphony_outbox::metadata::worker::{Completion, Outcome, complete_batch, next_due, repair};
use symphony_outbox::metadata::{Status, reading};

use crate::stage::{Stage, why};

#[tokio::test]
async fn in_a_batch_one_refusal_undoes_nothing_else() {
    let stage = Stage::set().await;
    let last = stage.claimed(1).await;
    let late = {
        let late = stage.claimed(3).await;
        let lease = late.lease().clone();
        late.published(&stage.root).await.unwrap();
        lease
    };
    let (one, two, three) = (stage.claimed(3).await, stage.claimed(3).await, stage.claimed(3).await);
    let away = || Outcome::Failed(why("the store is away"));
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
    let executor = stage.login("symphony_executor").await;
    let answers = complete_batch(&executor, &completions).await.unwrap();
    let told: Vec<_> = answers.iter().map(|answer| (answer.status, answer.refused.is_none())).collect();
    assert_eq!(
        told,
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
        assert!(matches!(answers[ended].refused, Some(MoveError::AlreadyTerminal(_))), "{:?}", answers[ended]);
    }
    assert!(matches!(answers[4].refused, Some(MoveError::WrongStatus(_))));
    assert_eq!((answers[3].next_retry_at.is_some(), answers[0].next_retry_at), (true, None));
}

#[tokio::test]
async fn a_batch_without_a_row_is_refused_as_a_whole() {
    let stage = Stage::set().await;
    let error = complete_batch(&stage.root, &[]).await.unwrap_err();
    assert!(matches!(error, MoveError::InvalidArgument(_)), "{error:?}");
}

#[tokio::test]
async fn repair_tells_what_is_tried_again_and_what_is_dead() {
    let stage = Stage::set().await;
    let (again, dead) = (stage.claimed(2).await.id(), stage.claimed(1).await.id());
    let executor = stage.login("symphony_executor").await;
    assert!(repair(&executor, 100).await.unwrap().is_empty(), "no claim is too old");
    stage.let_claims_age().await;
    stage.claimed(2).await;
    let mut repaired = repair(&executor, 100).await.unwrap();
    repaired.sort_by_key(|repaired| repaired.status != Status::Failed);
    let told: Vec<_> = repaired.iter().map(|r| (r.id, r.status, r.lost_worker.clone())).collect();
    assert_eq!(
        told,
        [(again, Status::Failed, Some("worker-1".into())), (dead, Status::Dlq, Some("worker-1".into()))]
    );
    let state = reading::entry(&stage.root, again).await.unwrap().unwrap();
    assert_eq!((state.retry_count, state.last_error.as_deref()), (1, Some("LEASE_EXPIRED")));
}

#[tokio::test]
async fn the_next_due_is_that_of_what_failed_and_has_retries_left() {
    let stage = Stage::set().await;
    let executor = stage.login("symphony_executor").await;
    stage.create(1).await;
    assert_eq!(next_due(&executor).await.unwrap(), None, "what is due already does not count");
    for held in stage.claim().await {
        held.failed(&stage.root, &why("away")).await.unwrap();
    }
    let hour =
        "update symphony.metadata_outbox set next_retry_at = now() + interval '1 hour' where status = 'FAILED'";
    stage.root.batch_execute(hour).await.unwrap();
    let due = next_due(&executor).await.unwrap().unwrap();
    assert!((3500..=3600).contains(&due.as_secs()), "{due:?}");
    stage.make_due().await;
    assert_eq!(next_due(&executor).await.unwrap(), None);
}
