//! A relayer that has seen an epoch sends no event of an earlier one: the server may be an old primary.

use symphony_relay::event::order::Order;
use symphony_testkit::epoch::forget_later_epochs;

use crate::fixture::{Fixture, route};

const CLAIMED: &str =
    "select count(*) from m10_recovery.outbox where processed_at is null and claimed_at is not null";

#[tokio::test]
async fn no_event_of_a_server_in_an_earlier_epoch_is_sent() {
    let fixture = Fixture::new().await;
    fixture.open_epoch(5).await;
    let relayer = fixture.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    fixture.publish("order", "1", "Placed").await;
    fixture.until_processed(1).await;
    forget_later_epochs(&fixture.owner).await.unwrap();
    let fenced = fixture.publish("order", "2", "Placed").await;
    // A claim on the session of before, as to a primary that was cut off, shows the epoch; each later one has a new session.
    fixture.until("claims fail", async || fixture.failed_calls() >= 3).await;
    assert_eq!(fixture.sink.sent().len(), 1);
    // It is the new primary that the relayer waits for.
    fixture.open_epoch(6).await;
    fixture
        .owner
        .execute(
            "update m10_recovery.outbox set claimed_at = null, claimed_by = null where processed_at is null",
            &[],
        )
        .await
        .unwrap();
    fixture.until_processed(2).await;
    let sent = fixture.sink.sent();
    assert_eq!((sent.len(), sent[1].id.as_str()), (2, fenced.to_string().as_str()));
    relayer.stop().await;
}

#[tokio::test]
async fn what_another_lane_has_seen_ends_the_sessions_to_an_old_primary_before_they_claim() {
    let fixture = Fixture::new().await;
    let relayer = fixture.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    fixture.publish("order", "1", "Placed").await;
    fixture.until_processed(1).await;
    fixture.fence.see(2).unwrap();
    fixture.publish("order", "2", "Placed").await;
    fixture.until_a_call_fails().await;
    assert_eq!((fixture.sink.sent().len(), fixture.count(CLAIMED).await), (1, 0));
    fixture.open_epoch(2).await;
    fixture.until_processed(2).await;
    relayer.stop().await;
}

#[tokio::test]
async fn what_was_claimed_in_an_earlier_epoch_and_not_sent_is_not_sent_under_that_claim() {
    let fixture = Fixture::new().await;
    fixture.sink.block(true);
    fixture.publish("order", "1", "Placed").await;
    let waiting = fixture.publish("order", "1", "Paid").await;
    let relayer = fixture.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    // The second waits for the first, in the same process.
    fixture.until("the first is being sent", async || fixture.sink.running() == 1).await;
    fixture.open_epoch(2).await;
    // The relayer learns of the epoch by its next claim.
    fixture.publish("order", "2", "Placed").await;
    fixture.until("a claim in the new epoch", async || fixture.sink.running() == 2).await;
    fixture.sink.block(false);
    fixture.until_errors(waiting, 1).await;
    assert!(fixture.errors(waiting).await[0].contains("claimed in an earlier epoch"));
    fixture.until_processed_skipping_backoff(3).await;
    let sent = fixture.sink.sent().iter().filter(|message| message.id == waiting.to_string()).count();
    assert_eq!(sent, 1, "it is sent under its second claim");
    relayer.stop().await;
}
