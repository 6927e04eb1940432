//! Proof 28: PgBouncer in transaction mode between the relayer and its database.

use serde_json::json;
use symphony_testkit::pgbouncer::Pooler;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, ORDERED, RAIL};

/// Fewer than the relayers and producers would open.
const SERVER_CONNECTIONS: u32 = 4;

#[tokio::test]
async fn behind_pgbouncer_everything_works_with_a_listen_url() {
    let mut harness = Harness::start().await;
    harness.set_rail(ORDERED, &json!({"ordered": true})).await;
    let pooler = Pooler::in_front_of(&harness.database.url(), SERVER_CONNECTIONS).await.unwrap();
    let direct = harness.url.clone();
    harness.url = pooler.url_through(&harness.url).unwrap();
    harness.producer_url = pooler.url_through(&harness.producer_url).unwrap();
    let mut settings = harness.settings_for(&[RAIL, ORDERED]);
    settings.listen_url = direct;
    let relayers = [harness.start_relayer(&settings).await, harness.start_relayer(&settings).await];
    let producers = harness.start_producers(&[RAIL, ORDERED]);
    producers.wait_for_more(60).await;
    // A relayer dies. The pooler keeps its server connections with their settings.
    relayers[0].program.kill9().await.unwrap();
    producers.wait_for_more(60).await;
    producers.stop().await;
    harness.reconcile().await;
    let condition = async || relayers[1].metric_sum("symphony_listener_connected").await == 1;
    until("it listens on a direct connection", DEFAULT_TIMEOUT, condition).await.unwrap();
    relayers[1].stop().await;
}

#[tokio::test]
async fn behind_pgbouncer_without_a_listen_url_the_relayer_warns_and_polls() {
    let mut harness = Harness::start().await;
    let pooler = Pooler::in_front_of(&harness.database.url(), SERVER_CONNECTIONS).await.unwrap();
    harness.url = pooler.url_through(&harness.url).unwrap();
    harness.producer_url = pooler.url_through(&harness.producer_url).unwrap();
    let relayer = harness.start_relayer(&harness.settings()).await;
    harness.enqueue("polled", 20).await;
    harness.wait_until_drained().await;
    let line = relayer.wait_for_log("not to a pooler").await;
    assert!(line.contains("must lead to PostgreSQL itself"), "{line}");
    assert!(line.contains("WARN") || line.contains("ERROR"), "{line}");
    assert_eq!(relayer.metric_sum("symphony_listener_connected").await, 0);
    harness.enqueue("again", 20).await;
    assert_eq!(harness.reconcile().await.counts.dispatched, 40);
    relayer.stop().await;
}
