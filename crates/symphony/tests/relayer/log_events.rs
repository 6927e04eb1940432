//! Log lines for alerting: each has a fixed name in the field `event`.

use serde_json::{Value, json};
use symphony_testkit::proxy::{FaultKind, Proxy};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;
use crate::relayer::Relayer;

/// The lines with this event, as JSON, of a relayer that has exited.
async fn events(relayer: &Relayer, name: &str) -> Vec<Value> {
    let lines = relayer.log_lines().await;
    let parsed = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["event"] == name).collect()
}

#[tokio::test]
async fn a_completion_that_is_refused_because_the_lease_is_lost_is_a_concurrency_event() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    let claim = network.arm(FaultKind::ReplyHeld, "claim_outbox_batch", 1);
    let mut settings = harness.settings().payment("lease", "'30s'").payment("call_timeout", "'20s'");
    settings.url = network.url().to_owned();
    harness.enqueue("raced", 1).await;
    let late = harness.start_relayer(&settings).await;
    // Before the relayer learns of its lease, another worker gets the row.
    claim.wait_fired(1, DEFAULT_TIMEOUT).await.unwrap();
    let takeover = "update symphony.payment_outbox_pending
                    set claimed_by = 'another worker', lease_token = gen_random_uuid()";
    harness.superuser().await.batch_execute(takeover).await.unwrap();
    claim.release();
    let line = late.wait_for_log("CONCURRENCY_EVENT").await;
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["event"], &line["level"]), (&json!("CONCURRENCY_EVENT"), &json!("INFO")), "{line}");
    let known = format!(
        "select count(*) from symphony.payment_outbox_pending where outbox_id = '{}'",
        line["lease"].as_str().unwrap()
    );
    assert_eq!(harness.query_number(&known).await, 1, "{line}");
    late.stop().await;
    assert_eq!(events(&late, "CONCURRENCY_EVENT").await.len(), 1);
}

#[tokio::test]
async fn each_payment_that_ends_as_failed_is_one_warning_with_ids_and_codes() {
    const REFUSED: usize = 3;
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({"max_attempts": 2})).await;
    let key = |number| instruction("bad", number, RAIL).idempotency_key;
    let faults = json!({"for_key": {
        (key(0)): ["refuse"], (key(1)): ["refuse"], (key(2)): ["busy", "busy"], (key(3)): ["ok"],
    }});
    harness.bank.set_faults(&faults).await;
    let relayer = harness.start_relayer(&harness.settings()).await;
    harness.enqueue("bad", REFUSED + 1).await;
    harness.wait_until_drained().await;
    relayer.stop().await;

    let lines = events(&relayer, "PAYMENT_FAILED").await;
    assert_eq!(lines.len(), REFUSED, "{lines:?}");
    let mut codes: Vec<_> = lines.iter().map(|line| line["error_code"].as_str().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["RAIL_REFUSED", "RAIL_REFUSED", "RAIL_RETRYABLE"]);
    for line in &lines {
        assert_eq!((&line["level"], &line["rail"]), (&json!("WARN"), &json!(RAIL)), "{line}");
        let known = format!(
            "select count(*) from symphony.payment_outbox_dlq where outbox_id = '{}'",
            line["outbox_id"].as_str().unwrap()
        );
        assert_eq!(harness.query_number(&known).await, 1, "{line}");
    }
}

#[tokio::test]
async fn a_worker_that_holds_the_rails_is_named_although_no_call_waits_for_it_for_long() {
    let harness = Harness::start().await;
    let relayer = harness.start_relayer(&harness.settings()).await;
    let hung = harness.database.connect_as("symphony_executor").await.unwrap();
    let pid: i32 = hung.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    hung.batch_execute(
        "set application_name = 'left open'; begin; select from symphony.claim_outbox_batch(1, 'worker', 60)",
    )
    .await
    .unwrap();
    // The gauge reads the database at each scrape; a transaction that it has seen for ten seconds is logged.
    until("the holder is logged", DEFAULT_TIMEOUT, async || {
        relayer.get("/metrics").await;
        relayer.log_count("LOCK_WAIT").await > 0
    })
    .await
    .unwrap();
    let line: Value = serde_json::from_str(&relayer.wait_for_log("LOCK_WAIT").await).unwrap();
    let named = (&line["table"], &line["blocking_pid"], &line["blocking_application"]);
    assert_eq!(named, (&json!("symphony.payment_rails"), &json!(pid), &json!("left open")), "{line}");
    relayer.stop().await;
}
