//! Dead letters: one log line per entry, which alert rules match and which contains no error text.

use symphony_relay::Lane as _;
use symphony_relay::store::Written;

use crate::captured_log;
use crate::fixture::Fixture;

/// The text that alert rules match.
const LINE: &str = "metadata entry moved to DLQ";

#[tokio::test]
async fn the_last_failure_ends_in_the_dlq_with_one_line_that_has_the_id_and_no_error() {
    captured_log::start();
    let fixture = Fixture::new().await;
    for _ in 0..2 {
        fixture.store.answer_next(Written::Refused("secret words about ann@example.org".into()));
    }
    let relayer = fixture.start("*");
    let id = fixture.create("document", "7", 2).await;
    fixture.until_skipping_backoff("the entry is in the DLQ", async || fixture.ended().await == 1).await;
    relayer.stop().await;
    let state = fixture.entry(id).await;
    assert_eq!((state.status.as_str(), state.retry_count), ("DLQ", 2));
    let lines = captured_log::containing(&id.to_string());
    let dead: Vec<_> = lines.iter().filter(|line| line.contains(LINE)).collect();
    assert_eq!(dead.len(), 1, "{lines:?}");
    assert!(dead[0].starts_with("ERROR symphony_relay::metadata"), "{dead:?}");
    assert!(captured_log::containing("secret words").is_empty());
}

#[tokio::test]
async fn expired_claims_are_requeued_or_logged_as_dead_letters_without_retries_left() {
    captured_log::start();
    let fixture = Fixture::new().await;
    let (again, dead) = (fixture.create("document", "1", 2).await, fixture.create("document", "2", 1).await);
    let claim = "select symphony.claim_metadata_batch('dead worker', 10)";
    fixture.owner.execute(claim, &[]).await.unwrap();
    let age = "update symphony.metadata_outbox set processing_started_at = now() - interval '6 minutes'";
    fixture.owner.execute(age, &[]).await.unwrap();
    let repaired = fixture.lane("*").repair().await.unwrap();
    assert_eq!((repaired.requeued, repaired.ended, repaired.more), (1, 1, false));
    assert_eq!(captured_log::containing(&dead.to_string()).iter().filter(|line| line.contains(LINE)).count(), 1);
    assert!(captured_log::containing(&again.to_string()).is_empty());

    let relayer = fixture.start("*");
    fixture.until_skipping_backoff("the other is published", async || fixture.ended().await == 2).await;
    relayer.stop().await;
    assert_eq!(fixture.entry(again).await.status.as_str(), "PUBLISHED");
}

#[tokio::test]
async fn a_release_counts_as_a_failure_and_is_recorded_as_released() {
    let fixture = Fixture::new().await;
    let lane = fixture.lane("*");
    let id = fixture.create("document", "7", 3).await;
    let jobs = lane.claim(&symphony_relay::claim_capacity::ClaimCapacity::new(10, 10)).await.unwrap().jobs;
    let leases: Vec<_> = jobs.iter().map(|job| lane.lease(job)).collect();
    assert_eq!(lane.release(&leases).await.unwrap(), 1);
    let state = fixture.entry(id).await;
    assert_eq!(
        (state.status.as_str(), state.retry_count, state.last_error.as_deref()),
        ("FAILED", 1, Some("RELEASED"))
    );
    assert_eq!(lane.release(&leases).await.unwrap(), 0, "the claim is no longer held");
    assert!(fixture.store.written().is_empty());
}
