//! Shutdown of a relayer: after the first signal it finishes its dispatches, after the second it exits at once.

use serde_json::json;
use symphony_testkit::wait::DEFAULT_TIMEOUT;

use crate::harness::{Harness, RAIL};

/// The exit code for SIGTERM: 128 + 15.
const TERMINATED: i32 = 143;

#[tokio::test]
async fn a_relayer_that_is_told_to_stop_under_load_leaves_no_lease() {
    let harness = Harness::start().await;
    harness.bank.set_faults(&json!({"latency": "200ms"})).await;
    // Default leases, which do not expire on a slow machine.
    let settings = harness.settings().payment_defaults().payment("slots", "8");
    let first = harness.start_relayer(&settings).await;
    let producers = harness.start_producers(&[RAIL]);
    producers.wait_for_more(50).await;
    harness.bank.wait_for_payments(5).await;
    first.stop().await;
    let held = "select count(*) from symphony.payment_outbox_pending where lease_token is not null";
    assert_eq!(harness.query_number(held).await, 0, "{}", first.program.tail());
    let zombies = "select count(*) from symphony.payment_outbox_attempts where state <> 'DISPATCHED'";
    assert_eq!(harness.query_number(zombies).await, 0);
    first.wait_for_log("\"left_behind\":0").await;

    let second = harness.start_relayer(&harness.settings()).await;
    producers.stop().await;
    harness.reconcile().await;
    second.stop().await;
}

#[tokio::test]
async fn a_second_signal_leaves_at_once_and_leases_expire() {
    let harness = Harness::start().await;
    harness.bank.set_faults(&json!({"latency": "60s"})).await;
    let first = harness.start_relayer(&harness.settings().payment_defaults()).await;
    harness.enqueue("left", 5).await;
    harness.bank.wait_for_received(5).await;
    first.program.term();
    first.wait_for_log("stopping").await;
    let (status, body) = first.get("/readyz").await;
    assert_eq!((status, body.as_str()), (503, "stopping\n"));
    assert!(first.program.is_running(), "a dispatch is under way");
    first.program.term();
    assert_eq!(first.program.exit_code(DEFAULT_TIMEOUT).await.unwrap(), TERMINATED);
    harness.wait_for_leases(5).await;

    harness.bank.set_faults(&json!({"latency": "0ms"})).await;
    harness.expire_leases().await;
    let second = harness.start_relayer(&harness.settings()).await;
    harness.reconcile().await;
    second.stop().await;
}
