//! Proof 27: the database commits a call, and its reply is lost.

use symphony_testkit::proxy::{FaultKind, Proxy};
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;

#[tokio::test]
async fn an_enqueue_whose_reply_is_lost_is_repeated_and_paid_once() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.producer_url).unwrap();
    let lost = network.arm(FaultKind::ReplyLost, "enqueue_payment_outbox", 3);
    let relayer = harness.start_relayer(&harness.settings()).await;
    let mut producer = harness.producer_at(network.url());
    let mut replayed = 0;
    for number in 0..6 {
        replayed += usize::from(producer.enqueue(&instruction("lost-reply", number, RAIL)).await);
    }
    lost.wait_fired(3, DEFAULT_TIMEOUT).await.unwrap();
    assert!(replayed > 0);
    harness.reconcile().await;
    relayer.stop().await;
}

#[tokio::test]
async fn a_claim_whose_reply_is_lost_is_taken_over_when_its_leases_expire() {
    let harness = Harness::start().await;
    harness.enqueue("lost-reply", 10).await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    let lost = network.arm(FaultKind::ReplyLost, "claim_outbox_batch", 1);
    let mut settings = harness.settings();
    settings.url = network.url().to_owned();
    let relayer = harness.start_relayer(&settings).await;
    lost.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    harness.reconcile().await;
    let zombies = "select count(*) from symphony.payment_outbox_attempts where state = 'ZOMBIE_REQUEUE'";
    assert!(harness.query_number(zombies).await >= 10);
    relayer.stop().await;
}

#[tokio::test]
async fn a_completion_whose_reply_is_lost_is_repeated_and_changes_nothing() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    let lost = network.arm(FaultKind::ReplyLost, "complete_outbox_batch", 3);
    let mut settings = harness.settings().payment_defaults();
    settings.url = network.url().to_owned();
    let relayer = harness.start_relayer(&settings).await;
    harness.enqueue("lost-reply", 20).await;
    lost.wait_fired(3, DEFAULT_TIMEOUT).await.unwrap();
    harness.reconcile().await;
    assert_eq!(harness.query_number("select count(*) from symphony.payment_outbox_attempts").await, 20);
    relayer.stop().await;
}
