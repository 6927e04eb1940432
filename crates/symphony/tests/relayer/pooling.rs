//! Proof 28, the pooler: PgBouncer in transaction mode between the relayer and its database.

use serde_json::json;
use symphony_proof::kit::pgbouncer::Pooler;
use symphony_proof::kit::wait::{BOUND, until};

use crate::yard::{ORDERED, RAIL, Yard};

/// Fewer than the relayers and producers would take.
const SESSIONS: u32 = 4;

#[tokio::test]
async fn behind_a_pooler_everything_works_with_an_address_to_listen_at() {
    let mut yard = Yard::open().await;
    yard.rail(ORDERED, &json!({"ordered": true})).await;
    let pooler = Pooler::before(&yard.database.url(), SESSIONS).await.unwrap();
    let direct = yard.url.clone();
    yard.url = pooler.instead_of(&yard.url).unwrap();
    yard.till_url = pooler.instead_of(&yard.till_url).unwrap();
    let mut orders = yard.orders_for(&[RAIL, ORDERED]);
    orders.listen_url = direct;
    let relayers = [yard.relayer(&orders).await, yard.relayer(&orders).await];
    let load = yard.load(&[RAIL, ORDERED]);
    load.goes_on(60).await;
    // A relayer dies, and the pooler's sessions with their settings stay.
    relayers[0].program.kill9().await.unwrap();
    load.goes_on(60).await;
    load.end().await;
    yard.audit().await;
    let so = async || relayers[1].count("symphony_listener_connected").await == 1;
    until("it listens past the pooler", BOUND, so).await.unwrap();
    relayers[1].stop().await;
}

#[tokio::test]
async fn behind_a_pooler_without_an_address_to_listen_at_it_says_so_and_polls() {
    let mut yard = Yard::open().await;
    let pooler = Pooler::before(&yard.database.url(), SESSIONS).await.unwrap();
    yard.url = pooler.instead_of(&yard.url).unwrap();
    yard.till_url = pooler.instead_of(&yard.till_url).unwrap();
    let relayer = yard.relayer(&yard.orders()).await;
    yard.enqueue("polled", 20).await;
    yard.is_done().await;
    let line = relayer.says("not to a pooler").await;
    assert!(line.contains("must lead to PostgreSQL itself"), "{line}");
    assert!(line.contains("WARN") || line.contains("ERROR"), "{line}");
    assert_eq!(relayer.count("symphony_listener_connected").await, 0);
    yard.enqueue("again", 20).await;
    assert_eq!(yard.audit().await.counts.dispatched, 40);
    relayer.stop().await;
}
