//! A worker dies with leases, and a claim of another relayer takes them over: the metrics and the log show the dead worker.

use std::os::unix::process::ExitStatusExt as _;

use serde_json::{Value, json};
use symphony_proof::kit::wait::{BOUND, until};

use crate::relayer::{Orders, Relayer};
use crate::yard::{RAIL, Yard};

const HELD: usize = 6;
const ABORTED: i32 = 6;

/// A relayer that is killed with leases on all of these payments. Returns its worker id.
async fn worker_killed_with_leases(yard: &Yard, producer: &str) -> String {
    yard.enqueue(producer, HELD).await;
    let orders = long_lease(yard.orders()).dying_at("after_claim");
    let victim = yard.relayer(&orders).await;
    let status = victim.program.exit(BOUND).await.unwrap();
    assert_eq!(status.signal(), Some(ABORTED), "{}", victim.program.tail());
    yard.leases_are_held(HELD).await;
    yard.expire_leases().await;
    victim.worker
}

/// Leases that only the test expires.
fn long_lease(orders: Orders) -> Orders {
    orders.payment("lease", "'30s'").payment("call_timeout", "'20s'")
}

/// A relayer whose claims take over: it never runs a repair pass.
async fn relayer_without_repair(yard: &Yard) -> Relayer {
    yard.relayer(&long_lease(yard.orders()).payment("repair_every", "'0s'")).await
}

async fn attempts(relayer: &Relayer, state: &str) -> u64 {
    let line = format!("symphony_attempts_total{{lane=\"payment\",rail=\"{RAIL}\",state=\"{state}\"}} ");
    let metrics = relayer.metrics().await;
    metrics.lines().find_map(|found| found.strip_prefix(&line)?.parse().ok()).unwrap_or(0)
}

/// The lines with this event, as JSON.
async fn events(relayer: &Relayer, name: &str) -> Vec<Value> {
    let lines = relayer.lines().await;
    let parsed = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    parsed.filter(|line| line["event"] == name).collect()
}

#[tokio::test]
async fn leases_that_a_claim_takes_over_are_counted_and_logged_with_the_worker_that_lost_them() {
    let yard = Yard::open().await;
    let lost = worker_killed_with_leases(&yard, "lost").await;
    let heir = relayer_without_repair(&yard).await;
    yard.audit().await;

    let count = u64::try_from(HELD).unwrap();
    let counted = async || attempts(&heir, "DISPATCHED").await == count;
    until("all are recorded", BOUND, counted).await.unwrap();
    assert_eq!(heir.count("symphony_reaper_requeues_total").await, count);
    assert_eq!(heir.count("symphony_reaper_ended_total").await, 0);
    assert_eq!(attempts(&heir, "ZOMBIE_REQUEUE").await, count);
    heir.stop().await;

    let detected = events(&heir, "expired_leases_detected").await;
    assert_eq!(detected.len(), 1, "{detected:?}");
    assert_eq!(detected[0]["count"], json!(HELD), "{detected:?}");
    assert_eq!(detected[0]["lost_workers"], json!(lost), "{detected:?}");
    assert_eq!(detected[0]["level"], "WARN");
    let repaired = events(&heir, "leases_repaired").await;
    assert_eq!(repaired.len(), 1, "{repaired:?}");
    assert_eq!((&repaired[0]["requeued"], &repaired[0]["ended"]), (&json!(HELD), &json!(0)));
    assert!(events(&heir, "PAYMENT_FAILED").await.is_empty());
}

#[tokio::test]
async fn a_takeover_that_ends_at_the_ceiling_is_counted_though_its_claim_brings_nothing() {
    let yard = Yard::open().await;
    yard.rail(RAIL, &json!({"max_attempts": 1})).await;
    worker_killed_with_leases(&yard, "spent").await;
    let heir = relayer_without_repair(&yard).await;
    yard.is_done().await;

    let count = u64::try_from(HELD).unwrap();
    let counted = async || heir.count("symphony_reaper_ended_total").await == count;
    until("all are counted", BOUND, counted).await.unwrap();
    assert_eq!(heir.count("symphony_reaper_requeues_total").await, 0);
    assert_eq!(attempts(&heir, "FAILED").await, count);
    assert_eq!(heir.count("symphony_claimed_total").await, 0);
    heir.stop().await;

    let failed = events(&heir, "PAYMENT_FAILED").await;
    assert_eq!(failed.len(), HELD, "{failed:?}");
    for line in &failed {
        assert_eq!((&line["level"], &line["rail"]), (&json!("WARN"), &json!(RAIL)), "{line}");
        assert_eq!(line["error_code"], "LEASE_EXPIRED", "{line}");
        let known = format!(
            "select count(*) from symphony.payment_outbox_attempts where state = 'FAILED' and outbox_id = '{}'",
            line["outbox_id"].as_str().unwrap()
        );
        assert_eq!(yard.number(&known).await, 1, "{line}");
    }
}

#[tokio::test]
async fn leases_that_a_repair_pass_ends_are_counted_by_rail_and_logged() {
    let yard = Yard::open().await;
    worker_killed_with_leases(&yard, "repaired").await;
    // No claim meets them: the rail is paused.
    let operator = yard.database.connect_as("symphony_operator").await.unwrap();
    operator.execute("select symphony.pause_payment_rail($1, 'test', 'a test')", &[&RAIL]).await.unwrap();
    let heir = yard.relayer(&long_lease(yard.orders()).payment("repair_every", "'1s'")).await;
    let count = u64::try_from(HELD).unwrap();
    let counted = async || heir.count("symphony_reaper_requeues_total").await == count;
    until("all are counted", BOUND, counted).await.unwrap();
    assert_eq!(attempts(&heir, "ZOMBIE_REQUEUE").await, count);
    heir.stop().await;
    for event in ["expired_leases_detected", "leases_repaired"] {
        let lines = events(&heir, event).await;
        assert_eq!(lines.len(), 1, "{event}: {lines:?}");
    }
}
