//! Proof 27, the lost reply: the database has done it, and nobody was told.

use symphony_proof::kit::proxy::{Harm, Proxy};
use symphony_proof::kit::wait::BOUND;

use crate::load::instruction;
use crate::yard::{RAIL, Yard};

#[tokio::test]
async fn an_enqueue_whose_reply_is_lost_is_repeated_and_paid_once() {
    let yard = Yard::open().await;
    let network = Proxy::before(&yard.till_url).unwrap();
    let lost = network.arm(Harm::ReplyLost, "enqueue_payment_outbox", 3);
    let relayer = yard.relayer(&yard.orders()).await;
    let mut till = yard.till_at(network.url());
    let mut replayed = 0;
    for number in 0..6 {
        replayed += usize::from(till.enqueue(&instruction("unheard", number, RAIL)).await);
    }
    lost.wait_fired(3, BOUND).await.unwrap();
    assert!(replayed > 0);
    yard.audit().await;
    relayer.stop().await;
}

#[tokio::test]
async fn a_claim_whose_reply_is_lost_is_taken_over_when_its_leases_expire() {
    let yard = Yard::open().await;
    yard.enqueue("unheard", 10).await;
    let network = Proxy::before(&yard.url).unwrap();
    let lost = network.arm(Harm::ReplyLost, "claim_outbox_batch", 1);
    let mut orders = yard.orders();
    orders.url = network.url().to_owned();
    let relayer = yard.relayer(&orders).await;
    lost.wait_fired(1, BOUND).await.unwrap();
    yard.audit().await;
    let zombies = "select count(*) from symphony.payment_outbox_attempts where state = 'ZOMBIE_REQUEUE'";
    assert!(yard.number(zombies).await >= 10);
    relayer.stop().await;
}

#[tokio::test]
async fn a_completion_whose_reply_is_lost_is_repeated_and_changes_nothing() {
    let yard = Yard::open().await;
    let network = Proxy::before(&yard.url).unwrap();
    let lost = network.arm(Harm::ReplyLost, "complete_outbox_batch", 3);
    let mut orders = yard.orders().defaults();
    orders.url = network.url().to_owned();
    let relayer = yard.relayer(&orders).await;
    yard.enqueue("unheard", 20).await;
    lost.wait_fired(3, BOUND).await.unwrap();
    yard.audit().await;
    assert_eq!(yard.number("select count(*) from symphony.payment_outbox_attempts").await, 20);
    relayer.stop().await;
}
