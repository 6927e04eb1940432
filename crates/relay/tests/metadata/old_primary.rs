//! A relayer that has seen an epoch writes no entry of an earlier one: the server may be an old primary.

use symphony_testkit::epoch::forget_later_epochs;

use crate::fixture::Fixture;

#[tokio::test]
async fn no_entry_of_a_server_in_an_earlier_epoch_is_written() {
    let fixture = Fixture::new().await;
    fixture.open_epoch(5).await;
    let relayer = fixture.start("*");
    fixture.create("document", "1", 3).await;
    fixture.until_ended(1).await;
    forget_later_epochs(&fixture.owner).await.unwrap();
    fixture.create("document", "2", 3).await;
    fixture.until("claims fail", async || fixture.failed_calls() >= 3).await;
    assert_eq!(fixture.store.written().len(), 1);
    // It is the new primary that the relayer waits for. There the claim has expired.
    fixture.open_epoch(6).await;
    fixture.expire_claims().await;
    fixture.until_skipping_backoff("the entry is published", async || fixture.ended().await == 2).await;
    assert_eq!(fixture.store.written().len(), 2);
    relayer.stop().await;
}

#[tokio::test]
async fn an_entry_that_was_claimed_in_an_earlier_epoch_is_not_written_under_that_claim() {
    let fixture = Fixture::new().await;
    fixture.store.block();
    fixture.create("document", "1", 3).await;
    let waiting = fixture.create("document", "1", 3).await;
    let relayer = fixture.start("*");
    // The second waits for the first, in the same process.
    fixture.until("the first is being written", async || fixture.store.running() == 1).await;
    fixture.fence.see(2).unwrap();
    fixture.open_epoch(2).await;
    fixture.store.unblock();
    let refused = "last_error like '%claimed in an earlier epoch%'";
    fixture.until("the second fails", async || fixture.count(refused).await == 1).await;
    assert_eq!(fixture.store.written().len(), 1);
    fixture.until_skipping_backoff("the entry is published", async || fixture.ended().await == 2).await;
    let state = fixture.entry(waiting).await;
    assert_eq!((state.status.as_str(), state.retry_count), ("PUBLISHED", 1));
    relayer.stop().await;
}
