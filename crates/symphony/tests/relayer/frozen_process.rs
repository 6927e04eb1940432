//! Proof 27: a relayer process that froze for longer than its lease neither sends nor records anything.

use serde_json::json;
use symphony_testkit::proxy::{FaultKind, Proxy};
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;

/// Leases that the frozen relayer holds.
const HELD: usize = 10;

/// How many attempts of the frozen payments this worker recorded.
async fn recorded_by(worker: &str, harness: &Harness) -> i64 {
    let recorded = "select count(*) from symphony.payment_outbox_attempts
                where state <> 'ZOMBIE_REQUEUE' and instruction_id like 'frozen-%' and worker_id";
    harness.query_number(&format!("{recorded} = '{worker}'")).await
}

#[tokio::test]
async fn a_relayer_that_was_frozen_while_it_sent_records_nothing() {
    let harness = Harness::start().await;
    harness.bank.set_faults(&json!({"latency": "1500ms"})).await;
    let late = harness.start_relayer(&harness.settings()).await;
    harness.enqueue("frozen", HELD).await;
    harness.bank.wait_for_received(HELD).await;
    late.program.suspend();
    harness.bank.set_faults(&json!({"latency": "0ms"})).await;
    let successor = harness.start_relayer(&harness.settings()).await;
    harness.wait_until_drained().await;

    late.program.resume();
    late.stop().await;
    assert_eq!(recorded_by(&late.worker, &harness).await, 0, "{}", late.program.tail());
    harness.reconcile().await;
    successor.stop().await;
}

#[tokio::test]
async fn a_relayer_that_was_frozen_before_it_sent_sends_nothing() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    harness.enqueue("frozen", HELD).await;
    let claim = network.arm(FaultKind::ReplyHeld, "claim_outbox_batch", 1);
    let mut settings = harness.settings();
    settings.url = network.url().to_owned();
    let late = harness.start_relayer(&settings).await;
    // The database has granted the leases, and the relayer does not know it yet.
    claim.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    late.program.suspend();
    let successor = harness.start_relayer(&harness.settings()).await;
    harness.wait_until_drained().await;
    assert_eq!(harness.bank.payments().await, HELD);

    claim.release();
    late.program.resume();
    // It continues to work. By the end of the next payment it would have sent what it held.
    successor.stop().await;
    harness.enqueue("afterwards", 1).await;
    harness.wait_until_drained().await;
    late.stop().await;
    assert_eq!(harness.bank.payments().await, HELD + 1, "{}", late.program.tail());
    assert_eq!(recorded_by(&late.worker, &harness).await, 0);
    harness.reconcile().await;
}

#[tokio::test]
async fn a_relayer_that_was_frozen_a_moment_before_it_sent_again_does_not() {
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({"on_unknown": "RESEND"})).await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    // Between the policy's advice and the resend only the check of the lease's clock can stop the resend.
    let advice = network.arm(FaultKind::ReplyHeld, "advise_on_unknown_outcome", 1);
    let key = instruction("frozen", 0, RAIL).idempotency_key;
    harness.bank.set_faults(&json!({"for_key": {(key.clone()): ["cut_before"]}})).await;
    let mut settings = harness.settings().without_inquiry();
    let successor_settings = settings.clone().payment_defaults();
    settings.url = network.url().to_owned();
    let late = harness.start_relayer(&settings).await;
    harness.enqueue("frozen", 1).await;
    advice.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    late.program.suspend();
    let successor = harness.start_relayer(&successor_settings).await;
    harness.wait_until_drained().await;
    successor.stop().await;
    let paid = ["NOTHING", "EXECUTED"].map(|outcome| ("payment".to_owned(), outcome.to_owned()));
    assert_eq!(harness.bank.requests_for(&key).await, paid);

    advice.release();
    late.program.resume();
    harness.enqueue("afterwards", 1).await;
    harness.wait_until_drained().await;
    late.stop().await;
    assert_eq!(harness.bank.requests_for(&key).await, paid, "{}", late.program.tail());
    harness.reconcile().await;
}
