//! Another relayer takes over the expired leases of a dead worker: metrics report them, and the log names the worker.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::{Value, json};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, RAIL};
use crate::relayer::{Relayer, Settings};

const HELD: usize = 6;
/// SIGABRT.
const ABORTED: i32 = 6;

/// Lets a relayer die with expired leases on all of these payments. Returns its worker id.
async fn worker_killed_with_leases(harness: &Harness, producer: &str) -> String {
    harness.enqueue(producer, HELD).await;
    let settings = long_lease(harness.settings()).abort_at("after_claim");
    let victim = harness.start_relayer(&settings).await;
    let status = victim.program.exit(DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(status.signal(), Some(ABORTED), "{}", victim.program.tail());
    harness.wait_for_leases(HELD).await;
    harness.expire_leases().await;
    victim.worker
}

/// Settings with leases that only the test expires.
fn long_lease(settings: Settings) -> Settings {
    settings.payment("lease", "'30s'").payment("call_timeout", "'20s'")
}

/// A relayer that never runs a repair pass, so its claims take over the leases.
async fn relayer_without_repair(harness: &Harness) -> Relayer {
    harness.start_relayer(&long_lease(harness.settings()).payment("repair_every", "'0s'")).await
}

async fn attempts(relayer: &Relayer, state: &str) -> u64 {
    let line = format!("symphony_attempts_total{{lane=\"payment\",rail=\"{RAIL}\",state=\"{state}\"}} ");
    let metrics = relayer.metrics().await;
    metrics.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok()).unwrap_or(0)
}

/// The lines with this event, as JSON.
async fn events(relayer: &Relayer, name: &str) -> Vec<Value> {
    let lines = relayer.log_lines().await;
    let parsed = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["event"] == name).collect()
}

#[tokio::test]
async fn leases_that_a_claim_takes_over_are_counted_and_logged_with_the_worker_that_lost_them() {
    let harness = Harness::start().await;
    let lost = worker_killed_with_leases(&harness, "lost").await;
    let successor = relayer_without_repair(&harness).await;
    harness.reconcile().await;

    let count = u64::try_from(HELD).unwrap();
    let counted = async || attempts(&successor, "DISPATCHED").await == count;
    until("all are recorded", DEFAULT_TIMEOUT, counted).await.unwrap();
    assert_eq!(successor.metric_sum("symphony_reaper_requeues_total").await, count);
    assert_eq!(successor.metric_sum("symphony_reaper_ended_total").await, 0);
    assert_eq!(attempts(&successor, "ZOMBIE_REQUEUE").await, count);
    successor.stop().await;

    let detected = events(&successor, "expired_leases_detected").await;
    assert_eq!(detected.len(), 1, "{detected:?}");
    assert_eq!(detected[0]["count"], json!(HELD), "{detected:?}");
    assert_eq!(detected[0]["lost_workers"], json!(lost), "{detected:?}");
    assert_eq!(detected[0]["level"], "WARN");
    let repaired = events(&successor, "leases_repaired").await;
    assert_eq!(repaired.len(), 1, "{repaired:?}");
    assert_eq!((&repaired[0]["requeued"], &repaired[0]["ended"]), (&json!(HELD), &json!(0)));
    assert!(events(&successor, "PAYMENT_FAILED").await.is_empty());
}

#[tokio::test]
async fn a_takeover_at_max_attempts_is_counted_though_its_claim_returns_no_row() {
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({"max_attempts": 1})).await;
    worker_killed_with_leases(&harness, "spent").await;
    let successor = relayer_without_repair(&harness).await;
    harness.wait_until_drained().await;

    let count = u64::try_from(HELD).unwrap();
    let counted = async || successor.metric_sum("symphony_reaper_ended_total").await == count;
    until("all are counted", DEFAULT_TIMEOUT, counted).await.unwrap();
    assert_eq!(successor.metric_sum("symphony_reaper_requeues_total").await, 0);
    assert_eq!(attempts(&successor, "FAILED").await, count);
    assert_eq!(successor.metric_sum("symphony_claimed_total").await, 0);
    successor.stop().await;

    let failed = events(&successor, "PAYMENT_FAILED").await;
    assert_eq!(failed.len(), HELD, "{failed:?}");
    for line in &failed {
        assert_eq!((&line["level"], &line["rail"]), (&json!("WARN"), &json!(RAIL)), "{line}");
        assert_eq!(line["error_code"], "LEASE_EXPIRED", "{line}");
        let known = format!(
            "select count(*) from symphony.payment_outbox_attempts where state = 'FAILED' and outbox_id = '{}'",
            line["outbox_id"].as_str().unwrap()
        );
        assert_eq!(harness.query_number(&known).await, 1, "{line}");
    }
}

#[tokio::test]
async fn leases_that_a_repair_pass_ends_are_counted_by_rail_and_logged() {
    let harness = Harness::start().await;
    worker_killed_with_leases(&harness, "repaired").await;
    // The rail is paused, so no claim takes over.
    let operator = harness.database.connect_as("symphony_operator").await.unwrap();
    operator.execute("select symphony.pause_payment_rail($1, 'test', 'a test')", &[&RAIL]).await.unwrap();
    let successor = harness.start_relayer(&long_lease(harness.settings()).payment("repair_every", "'1s'")).await;
    let count = u64::try_from(HELD).unwrap();
    let counted = async || successor.metric_sum("symphony_reaper_requeues_total").await == count;
    until("all are counted", DEFAULT_TIMEOUT, counted).await.unwrap();
    assert_eq!(attempts(&successor, "ZOMBIE_REQUEUE").await, count);
    successor.stop().await;
    for event in ["expired_leases_detected", "leases_repaired"] {
        let lines = events(&successor, event).await;
        assert_eq!(lines.len(), 1, "{event}: {lines:?}");
    }
}
