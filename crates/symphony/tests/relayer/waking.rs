//! Proof 26: being woken is enough, and so is polling.

use symphony_proof::kit::proxy::{Newcomers, Proxy};
use symphony_proof::kit::wait::{BOUND, until};

use crate::load::instruction;
use crate::yard::{RAIL, Yard};

/// Enough that luck does not carry them all.
const TRIALS: usize = 25;

#[tokio::test]
async fn notifications_alone_drive_it() {
    let yard = Yard::open().await;
    let relayer = yard.relayer(&yard.orders().payment("poll", "'0s'").payment("repair_every", "'0s'")).await;
    let mut till = yard.till();
    for number in 0..TRIALS {
        // One at a time: each finds a relayer that sleeps, and nothing but a call wakes it.
        till.enqueue(&instruction("woken", number, RAIL)).await;
        yard.is_done().await;
    }
    // What is found by the last look before it sleeps was not rung for; most of these were.
    let rung = relayer.count("symphony_notify_wakeups_total").await;
    assert!(rung > 0, "{}", relayer.metrics().await);
    // Many at once, and none is left lying.
    yard.enqueue("burst", 200).await;
    yard.is_done().await;
    relayer.stop().await;
    assert_eq!(yard.audit().await.counts.dispatched, TRIALS + 200);
}

#[tokio::test]
async fn the_poll_alone_drives_it() {
    let yard = Yard::open().await;
    let network = Proxy::before(&yard.url).unwrap();
    let mut orders = yard.orders();
    orders.listen_url = network.url().to_owned();
    let relayer = yard.relayer(&orders).await;
    yard.enqueue("heard", 1).await;
    yard.is_done().await;
    let so = async || relayer.count("symphony_listener_connected").await == 1;
    until("it listens", BOUND, so).await.unwrap();

    network.cut(Newcomers::Refuse).await;
    relayer.says("the listener is lost").await;
    assert_eq!(relayer.count("symphony_listener_connected").await, 0);
    let rung = relayer.count("symphony_notify_wakeups_total").await;
    let mut till = yard.till();
    for number in 0..5 {
        till.enqueue(&instruction("polled", number, RAIL)).await;
        yard.is_done().await;
    }
    assert_eq!(relayer.count("symphony_notify_wakeups_total").await, rung, "nobody can have rung");

    // And it comes back by itself.
    network.accept().await.unwrap();
    relayer.says("the listener is connected again").await;
    let so = async || relayer.count("symphony_listener_connected").await == 1;
    until("it listens again", BOUND, so).await.unwrap();
    relayer.stop().await;
    assert_eq!(yard.audit().await.counts.dispatched, 6);
}
