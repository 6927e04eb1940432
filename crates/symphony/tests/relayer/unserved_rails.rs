//! A rail that is registered and served by no relayer must not stop a fleet: it is reported, and the rest is served.

use serde_json::{Value, json};
use symphony_proof::kit::wait::{BOUND, until};

use crate::load::instruction;
use crate::yard::{RAIL, Yard};

const TYPO: &str = "sepaa";

#[tokio::test]
async fn a_mistyped_rail_does_not_keep_a_relayer_from_starting() {
    let yard = Yard::open().await;
    yard.rail(TYPO, &json!({})).await;
    let relayer = yard.relayer(&yard.orders()).await;
    let line: Value = serde_json::from_str(&relayer.says("UNSERVED_RAIL").await).unwrap();
    assert_eq!((&line["event"], &line["level"]), (&json!("UNSERVED_RAIL"), &json!("WARN")), "{line}");
    assert_eq!(line["rail"], TYPO, "{line}");

    yard.enqueue("served", 3).await;
    let mut till = yard.till();
    till.enqueue(&instruction("lost", 0, TYPO)).await;
    until("the rest is served", BOUND, async || yard.pending().await == 1).await.unwrap();
    until("it is ready", BOUND, async || relayer.ask("/readyz").await.0 == 200).await.unwrap();
    let gauge =
        |rail: &str, value: u8| format!("symphony_rail_unserved{{lane=\"payment\",rail=\"{rail}\"}} {value}");
    let metrics = relayer.metrics().await;
    assert!(metrics.contains(&gauge(TYPO, 1)) && metrics.contains(&gauge(RAIL, 0)), "{metrics}");
    relayer.stop().await;
}

#[tokio::test]
async fn a_rail_that_was_retired_under_its_relayers_does_not_keep_them_from_starting() {
    let yard = Yard::open().await;
    yard.rail(TYPO, &json!({})).await;
    let retire = format!("select symphony.retire_payment_rail('{TYPO}', 'test', 'mistyped')");
    yard.owner().await.batch_execute(&retire).await.unwrap();
    let relayer = yard.relayer(&yard.orders_for(&[RAIL, TYPO])).await;
    let line: Value = serde_json::from_str(&relayer.says("RETIRED_RAIL").await).unwrap();
    assert_eq!((&line["event"], &line["rail"]), (&json!("RETIRED_RAIL"), &json!(TYPO)), "{line}");
    yard.enqueue("served", 3).await;
    yard.audit().await;
    relayer.stop().await;
}
