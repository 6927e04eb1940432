//! Entries that are given up: one line for each that alerting can match, and no word of why.

use symphony_relay::Lane as _;
use symphony_relay::store::Written;

use crate::log;
use crate::stage::Stage;

/// What alerting looks for.
const LINE: &str = "metadata entry moved to DLQ";

#[tokio::test]
async fn the_last_failure_ends_in_the_dlq_with_one_line_that_has_the_id_and_no_error() {
    log::listen();
    let stage = Stage::set().await;
    for _ in 0..2 {
        stage.store.answer_next(Written::Refused("secret words about ann@example.org".into()));
    }
    let work = stage.start("*");
    let id = stage.create("document", "7", 2).await;
    stage.until_hastened("it is dead", async || stage.ended().await == 1).await;
    work.end().await;
    let state = stage.entry(id).await;
    assert_eq!((state.status.as_str(), state.retry_count), ("DLQ", 2));
    let lines = log::about(&id.to_string());
    let dead: Vec<_> = lines.iter().filter(|line| line.contains(LINE)).collect();
    assert_eq!(dead.len(), 1, "{lines:?}");
    assert!(dead[0].starts_with("ERROR symphony_relay::metadata"), "{dead:?}");
    assert!(log::about("secret words").is_empty());
}

#[tokio::test]
async fn what_a_dead_worker_held_is_repaired_and_told_where_it_has_no_retries_left() {
    log::listen();
    let stage = Stage::set().await;
    let (again, dead) = (stage.create("document", "1", 2).await, stage.create("document", "2", 1).await);
    let claim = "select symphony.claim_metadata_batch('dead worker', 10)";
    stage.owner.execute(claim, &[]).await.unwrap();
    let age = "update symphony.metadata_outbox set processing_started_at = now() - interval '6 minutes'";
    stage.owner.execute(age, &[]).await.unwrap();
    let repaired = stage.lane("*").repair().await.unwrap();
    assert_eq!((repaired.requeued, repaired.ended, repaired.more), (1, 1, false));
    assert_eq!(log::about(&dead.to_string()).iter().filter(|line| line.contains(LINE)).count(), 1);
    assert!(log::about(&again.to_string()).is_empty());

    let work = stage.start("*");
    stage.until_hastened("the other is published", async || stage.ended().await == 2).await;
    work.end().await;
    assert_eq!(stage.entry(again).await.status.as_str(), "PUBLISHED");
}

#[tokio::test]
async fn what_is_given_back_unsent_counts_as_a_failure_and_says_so() {
    let stage = Stage::set().await;
    let lane = stage.lane("*");
    let id = stage.create("document", "7", 3).await;
    let jobs = lane.claim(&symphony_relay::claim_capacity::ClaimCapacity::new(10, 10)).await.unwrap().jobs;
    let leases: Vec<_> = jobs.iter().map(|job| lane.lease(job)).collect();
    assert_eq!(lane.release(&leases).await.unwrap(), 1);
    let state = stage.entry(id).await;
    assert_eq!(
        (state.status.as_str(), state.retry_count, state.last_error.as_deref()),
        ("FAILED", 1, Some("RELEASED"))
    );
    assert_eq!(lane.release(&leases).await.unwrap(), 0, "it is held no more");
    assert!(stage.store.written().is_empty());
}
