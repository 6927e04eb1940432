//! Proof 28, the silence: the database does not answer, and nobody says that it is gone.

use serde_json::json;
use symphony_proof::kit::proxy::{Direction, Newcomers, Proxy};

use crate::yard::Yard;

/// How many instructions are under way when it falls silent.
const HELD: usize = 10;

#[tokio::test]
async fn a_lease_that_cannot_be_renewed_ends_its_dispatch_and_the_bank_is_asked_afterwards() {
    let yard = Yard::open().await;
    let network = Proxy::before(&yard.url).unwrap();
    let mut orders = yard.orders();
    orders.url = network.url().to_owned();
    let relayer = yard.relayer(&orders).await;
    // The bank has all of it, and takes its time: longer than a lease.
    yard.bank.order(&json!({"latency": "8s"})).await;
    yard.enqueue("silent", HELD).await;
    yard.leases_are_held(HELD).await;
    network.stall(Direction::Both);
    relayer.says("its dispatch is cancelled").await;
    network.release();
    yard.bank.order(&json!({"latency": "0ms"})).await;

    let report = yard.audit().await;
    assert_eq!(report.counts.dispatched, HELD);
    assert!(report.counts.in_doubt >= HELD, "each was cut off half-way: {report}");
    let payments = yard.bank.payments().await;
    let inquiries = yard.bank.requests().await.len() - payments;
    assert!(inquiries >= HELD, "{inquiries} inquiries");
    relayer.stop().await;
}

#[tokio::test]
async fn a_relayer_that_is_told_to_stop_while_the_database_is_away_ends_all_the_same() {
    let yard = Yard::open().await;
    let network = Proxy::before(&yard.url).unwrap();
    // It has all the time that it wants, and nothing to wait for once its leases are over.
    let mut orders = yard.orders().payment("grace", "'10m'");
    orders.url = network.url().to_owned();
    let first = yard.relayer(&orders).await;
    yard.bank.order(&json!({"latency": "1s"})).await;
    yard.enqueue("unrecorded", HELD).await;
    yard.leases_are_held(HELD).await;
    network.cut(Newcomers::Refuse).await;
    first.stop().await;

    // What it could not record, the next one asks for.
    yard.bank.order(&json!({"latency": "0ms"})).await;
    let second = yard.relayer(&yard.orders()).await;
    assert_eq!(yard.audit().await.counts.dispatched, HELD);
    second.stop().await;
}
