//! A registered rail that no relayer serves: relayers start with a warning, export it, and serve the other rails.

use serde_json::{Value, json};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;

const TYPO: &str = "sepaa";

#[tokio::test]
async fn a_mistyped_rail_does_not_keep_a_relayer_from_starting() {
    let harness = Harness::start().await;
    harness.set_rail(TYPO, &json!({})).await;
    let relayer = harness.start_relayer(&harness.settings()).await;
    let line: Value = serde_json::from_str(&relayer.wait_for_log("UNSERVED_RAIL").await).unwrap();
    assert_eq!((&line["event"], &line["level"]), (&json!("UNSERVED_RAIL"), &json!("WARN")), "{line}");
    assert_eq!(line["rail"], TYPO, "{line}");

    harness.enqueue("served", 3).await;
    let mut producer = harness.producer();
    producer.enqueue(&instruction("lost", 0, TYPO)).await;
    until("the other rail is drained", DEFAULT_TIMEOUT, async || harness.pending_count().await == 1)
        .await
        .unwrap();
    until("it is ready", DEFAULT_TIMEOUT, async || relayer.get("/readyz").await.0 == 200).await.unwrap();
    let gauge =
        |rail: &str, value: u8| format!("symphony_rail_unserved{{lane=\"payment\",rail=\"{rail}\"}} {value}");
    let metrics = relayer.metrics().await;
    assert!(metrics.contains(&gauge(TYPO, 1)) && metrics.contains(&gauge(RAIL, 0)), "{metrics}");
    relayer.stop().await;
}

#[tokio::test]
async fn a_rail_that_was_retired_under_its_relayers_does_not_keep_them_from_starting() {
    let harness = Harness::start().await;
    harness.set_rail(TYPO, &json!({})).await;
    let retire = format!("select symphony.retire_payment_rail('{TYPO}', 'test', 'mistyped')");
    harness.superuser().await.batch_execute(&retire).await.unwrap();
    let relayer = harness.start_relayer(&harness.settings_for(&[RAIL, TYPO])).await;
    let line: Value = serde_json::from_str(&relayer.wait_for_log("RETIRED_RAIL").await).unwrap();
    assert_eq!((&line["event"], &line["rail"]), (&json!("RETIRED_RAIL"), &json!(TYPO)), "{line}");
    harness.enqueue("served", 3).await;
    harness.reconcile().await;
    relayer.stop().await;
}
