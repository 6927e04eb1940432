//! What a relayer answers over HTTP: health, readiness, metrics.

use serde_json::json;
use symphony_proof::kit::proxy::{Newcomers, Proxy};
use symphony_proof::kit::wait::{BOUND, until};

use crate::load::instruction;
use crate::yard::{RAIL, Yard};

/// The names that dashboards and alerts are built on.
const METRICS: [&str; 13] = [
    "outbox_pending_depth",
    "oldest_pending_age_seconds",
    "oldest_due_age_seconds",
    "notify_wakeups_total",
    "claim_batches_total",
    "dispatch_latency_seconds_bucket",
    "attempts_total",
    "dlq_depth",
    "reaper_requeues_total",
    "stuck_dispatching_count",
    "lease_lost_total",
    "terminal_backstop_total",
    "repair_passes_total",
];

#[tokio::test]
async fn every_metric_has_its_name_and_counts() {
    let yard = Yard::open().await;
    let refused = instruction("seen", 1, RAIL).idempotency_key;
    yard.bank.order(&json!({"for_key": {(refused): ["refuse"]}})).await;
    let relayer = yard.relayer(&yard.orders().defaults().payment("repair_every", "'1s'")).await;
    yard.enqueue("seen", 5).await;
    until("all are counted", BOUND, async || relayer.count("symphony_attempts_total").await == 5).await.unwrap();
    let text = relayer.metrics().await;
    for name in METRICS {
        let start = format!("symphony_{name}{{");
        let there = text.lines().any(|line| line.starts_with(&start) && line.contains("lane=\"payment\""));
        assert!(there, "{name} is not in:\n{text}");
    }
    assert!(text.ends_with("# EOF\n"), "{text}");
    let attempts =
        |state: &str| format!("symphony_attempts_total{{lane=\"payment\",rail=\"{RAIL}\",state=\"{state}\"}}");
    assert!(text.contains(&format!("{} 4\n", attempts("DISPATCHED"))), "{text}");
    assert!(text.contains(&format!("{} 1\n", attempts("FAILED"))), "{text}");
    assert!(
        text.contains(&format!("symphony_dispatch_latency_seconds_count{{lane=\"payment\",rail=\"{RAIL}\"}} 5\n"))
    );
    // The gauges of the database are asked for again after a few seconds.
    until("the dead letter is counted", BOUND, async || relayer.count("symphony_dlq_depth").await == 1)
        .await
        .unwrap();
    let passes = async || relayer.count("symphony_repair_passes_total").await >= 2;
    until("passes of repair are counted", BOUND, passes).await.unwrap();
    // The database is on this machine: the clock is the same, but for the time that the question takes.
    let offset =
        text.lines().find_map(|line| line.strip_prefix("symphony_database_clock_offset_seconds ")).unwrap();
    assert!(offset.parse::<f64>().unwrap().abs() < 3.0, "{offset}");
    assert_eq!(relayer.ask("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(relayer.ask("/elsewhere").await.0, 404);
    relayer.stop().await;
}

/// What a restore of pending alone leaves: a payment that the ledger has ended is pending again.
#[tokio::test]
async fn a_payment_that_had_ended_already_is_counted_by_the_terminal_backstop_and_not_sent_again() {
    let yard = Yard::open().await;
    let relayer = yard.relayer(&yard.orders().payment("repair_every", "'1s'")).await;
    yard.enqueue("restored", 3).await;
    yard.is_done().await;
    assert_eq!(relayer.count("symphony_terminal_backstop_total").await, 0);
    let again = "insert into symphony.payment_outbox_pending
                   (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at)
                 select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at
                 from symphony.payment_outbox_attempts";
    yard.owner().await.batch_execute(again).await.unwrap();
    relayer.says("they are in quarantine").await;
    until("it is counted", BOUND, async || relayer.count("symphony_terminal_backstop_total").await == 3)
        .await
        .unwrap();
    assert_eq!(yard.number("select count(*) from symphony.quarantined_outboxes").await, 3);
    assert_eq!(yard.number("select count(*) from symphony.payment_outbox_attempts").await, 3);
    yard.audit().await;
    relayer.stop().await;
}

/// Half a minute of silence is what it takes, and both are seen in the same half minute.
#[tokio::test]
async fn it_is_ready_as_long_as_the_database_answers_and_whatever_the_bank_does() {
    let yard = Yard::open().await;
    let network = Proxy::before(&yard.url).unwrap();
    // This one leaves its only rail alone for an hour, and has nothing to ask the database.
    yard.bank.order(&json!({"error_500_before": "1"})).await;
    let mut orders = yard.orders().payment("repair_every", "'0s'");
    orders.more = "[payment.breaker]\nfailures = 1\nfirst_pause = '1h'\nlongest_pause = '1h'\n".to_owned();
    let idle = yard.relayer(&orders).await;
    yard.enqueue("waiting", 1).await;
    idle.says("circuit breaker opened").await;

    let mut orders = yard.orders();
    orders.url = network.url().to_owned();
    let cut = yard.relayer(&orders).await;
    until("it is ready", BOUND, async || cut.ask("/readyz").await == (200, "ready\n".to_owned())).await.unwrap();
    network.cut(Newcomers::Refuse).await;
    let away = (503, "the database does not answer\n".to_owned());
    until("it is not ready", 2 * BOUND, async || cut.ask("/readyz").await == away).await.unwrap();
    assert_eq!(cut.ask("/healthz").await.0, 200, "it lives, and waits");
    assert_eq!(idle.ask("/readyz").await, (200, "ready\n".to_owned()), "its database is there");

    network.accept().await.unwrap();
    until("it is ready again", BOUND, async || cut.ask("/readyz").await.0 == 200).await.unwrap();
    yard.bank.order(&json!({"preset": "none"})).await;
    yard.audit().await;
    cut.stop().await;
    idle.stop().await;
}
