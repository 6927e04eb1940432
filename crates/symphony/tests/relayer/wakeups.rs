//! Proof 26: a relayer dispatches everything with notifications alone, and with polling alone.

use symphony_testkit::proxy::{NewConnections, Proxy};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;

/// Enough payments that chance alone cannot dispatch all of them.
const TRIALS: usize = 25;

#[tokio::test]
async fn notifications_alone_drive_it() {
    let harness = Harness::start().await;
    let relayer = harness
        .start_relayer(&harness.settings().payment("poll_interval", "'0s'").payment("repair_every", "'0s'"))
        .await;
    let mut producer = harness.producer();
    for number in 0..TRIALS {
        // One at a time: each finds an idle relayer, which only a notification can wake.
        producer.enqueue(&instruction("woken", number, RAIL)).await;
        harness.wait_until_drained().await;
    }
    // The last claim before idling finds some payments without a notification, but not all.
    let wakeups = relayer.metric_sum("symphony_notify_wakeups_total").await;
    assert!(wakeups > 0, "{}", relayer.metrics().await);
    // Many at once, and none stays pending.
    harness.enqueue("burst", 200).await;
    harness.wait_until_drained().await;
    relayer.stop().await;
    assert_eq!(harness.reconcile().await.counts.dispatched, TRIALS + 200);
}

#[tokio::test]
async fn the_poll_alone_drives_it() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    let mut settings = harness.settings();
    settings.listen_url = network.url().to_owned();
    let relayer = harness.start_relayer(&settings).await;
    harness.enqueue("notified", 1).await;
    harness.wait_until_drained().await;
    let condition = async || relayer.metric_sum("symphony_listener_connected").await == 1;
    until("it listens", DEFAULT_TIMEOUT, condition).await.unwrap();

    network.cut(NewConnections::Refuse).await;
    relayer.wait_for_log("the listener is lost").await;
    assert_eq!(relayer.metric_sum("symphony_listener_connected").await, 0);
    let wakeups = relayer.metric_sum("symphony_notify_wakeups_total").await;
    let mut producer = harness.producer();
    for number in 0..5 {
        producer.enqueue(&instruction("polled", number, RAIL)).await;
        harness.wait_until_drained().await;
    }
    assert_eq!(
        relayer.metric_sum("symphony_notify_wakeups_total").await,
        wakeups,
        "a notification arrived without a listener"
    );

    // The listener reconnects.
    network.accept().await.unwrap();
    relayer.wait_for_log("the listener is connected again").await;
    let condition = async || relayer.metric_sum("symphony_listener_connected").await == 1;
    until("it listens again", DEFAULT_TIMEOUT, condition).await.unwrap();
    relayer.stop().await;
    assert_eq!(harness.reconcile().await.counts.dispatched, 6);
}
