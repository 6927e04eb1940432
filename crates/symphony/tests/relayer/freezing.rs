//! Proof 27, the late worker: a process that got no time for longer than its lease.

use serde_json::json;
use symphony_proof::kit::proxy::{Harm, Proxy};
use symphony_proof::kit::wait::BOUND;

use crate::load::instruction;
use crate::yard::{RAIL, Yard};

/// How many instructions it holds.
const HELD: usize = 10;
/// What it did about them, other than losing its leases.
async fn done_by(worker: &str, yard: &Yard) -> i64 {
    let done = "select count(*) from symphony.payment_outbox_attempts
                where state <> 'ZOMBIE_REQUEUE' and instruction_id like 'frozen-%' and worker_id";
    yard.number(&format!("{done} = '{worker}'")).await
}

#[tokio::test]
async fn a_relayer_that_was_frozen_while_it_sent_records_nothing() {
    let yard = Yard::open().await;
    yard.bank.order(&json!({"latency": "1500ms"})).await;
    let late = yard.relayer(&yard.orders()).await;
    yard.enqueue("frozen", HELD).await;
    yard.leases_are_held(HELD).await;
    late.program.stop();
    yard.bank.order(&json!({"latency": "0ms"})).await;
    let heir = yard.relayer(&yard.orders()).await;
    yard.is_done().await;

    late.program.cont();
    late.stop().await;
    assert_eq!(done_by(&late.worker, &yard).await, 0, "{}", late.program.tail());
    yard.audit().await;
    heir.stop().await;
}

#[tokio::test]
async fn a_relayer_that_was_frozen_before_it_sent_sends_nothing() {
    let yard = Yard::open().await;
    let network = Proxy::before(&yard.url).unwrap();
    yard.enqueue("frozen", HELD).await;
    let claim = network.arm(Harm::ReplyHeld, "claim_outbox_batch", 1);
    let mut orders = yard.orders();
    orders.url = network.url().to_owned();
    let late = yard.relayer(&orders).await;
    // It has the leases, and does not know it yet.
    claim.wait_fired(1, BOUND).await.unwrap();
    late.program.stop();
    let heir = yard.relayer(&yard.orders()).await;
    yard.is_done().await;
    assert_eq!(yard.bank.payments().await, HELD);

    claim.release();
    late.program.cont();
    // It goes on to work, and would have sent by then what it held.
    heir.stop().await;
    yard.enqueue("afterwards", 1).await;
    yard.is_done().await;
    late.stop().await;
    assert_eq!(yard.bank.payments().await, HELD + 1, "{}", late.program.tail());
    assert_eq!(done_by(&late.worker, &yard).await, 0);
    yard.audit().await;
}

#[tokio::test]
async fn a_relayer_that_was_frozen_a_moment_before_it_sent_again_does_not() {
    let yard = Yard::open().await;
    yard.rail(RAIL, &json!({"on_unknown": "RESEND"})).await;
    let network = Proxy::before(&yard.url).unwrap();
    // All that stands between the question what the policy allows and the sending is the look at the clock.
    let advice = network.arm(Harm::ReplyHeld, "advise_on_unknown_outcome", 1);
    let key = instruction("frozen", 0, RAIL).idempotency_key;
    yard.bank.order(&json!({"for_key": {(key.clone()): ["cut_before"]}})).await;
    let mut orders = yard.orders();
    let without = |section: &String| {
        section.lines().filter(|line| !line.starts_with("inquiry_url")).collect::<Vec<_>>().join("\n")
    };
    orders.rails = orders.rails.iter().map(|(name, section)| (name.clone(), without(section))).collect();
    let heirs = orders.clone().defaults();
    orders.url = network.url().to_owned();
    let late = yard.relayer(&orders).await;
    yard.enqueue("frozen", 1).await;
    advice.wait_fired(1, BOUND).await.unwrap();
    late.program.stop();
    let heir = yard.relayer(&heirs).await;
    yard.is_done().await;
    heir.stop().await;
    let paid = ["NOTHING", "EXECUTED"].map(|outcome| ("payment".to_owned(), outcome.to_owned()));
    assert_eq!(yard.bank.story(&key).await, paid);

    advice.release();
    late.program.cont();
    yard.enqueue("afterwards", 1).await;
    yard.is_done().await;
    late.stop().await;
    assert_eq!(yard.bank.story(&key).await, paid, "{}", late.program.tail());
    yard.audit().await;
}
