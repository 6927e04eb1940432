//! The end of a relayer: the first signal lets it finish, the second does not.

use serde_json::json;
use symphony_proof::kit::wait::BOUND;

use crate::yard::{RAIL, Yard};

/// SIGTERM, as shells tell it.
const TERMINATED: i32 = 143;

#[tokio::test]
async fn a_relayer_that_is_told_to_stop_under_load_leaves_no_lease() {
    let yard = Yard::open().await;
    yard.bank.order(&json!({"latency": "200ms"})).await;
    // With leases that no slow machine lets run out.
    let orders = yard.orders().defaults().payment("slots", "8");
    let first = yard.relayer(&orders).await;
    let load = yard.load(&[RAIL]);
    load.goes_on(50).await;
    yard.bank.has_dealt_with(5).await;
    first.stop().await;
    let held = "select count(*) from symphony.payment_outbox_pending where lease_token is not null";
    assert_eq!(yard.number(held).await, 0, "{}", first.program.tail());
    let zombies = "select count(*) from symphony.payment_outbox_attempts where state <> 'DISPATCHED'";
    assert_eq!(yard.number(zombies).await, 0);
    first.says("\"left_behind\":0").await;

    let second = yard.relayer(&yard.orders()).await;
    load.end().await;
    yard.audit().await;
    second.stop().await;
}

#[tokio::test]
async fn a_second_signal_leaves_at_once_and_leases_expire() {
    let yard = Yard::open().await;
    yard.bank.order(&json!({"latency": "60s"})).await;
    let first = yard.relayer(&yard.orders().defaults()).await;
    yard.enqueue("left", 5).await;
    yard.leases_are_held(5).await;
    first.program.term();
    first.says("stopping").await;
    let (status, words) = first.ask("/readyz").await;
    assert_eq!((status, words.as_str()), (503, "stopping\n"));
    assert!(first.program.is_running(), "a dispatch is under way");
    first.program.term();
    assert_eq!(first.program.exit_code(BOUND).await.unwrap(), TERMINATED);
    yard.leases_are_held(5).await;

    yard.bank.order(&json!({"latency": "0ms"})).await;
    yard.expire_leases().await;
    let second = yard.relayer(&yard.orders()).await;
    yard.audit().await;
    second.stop().await;
}
