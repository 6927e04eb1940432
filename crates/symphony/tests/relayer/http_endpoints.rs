//! The HTTP endpoints of a relayer: health, readiness and metrics.

use serde_json::json;
use symphony_testkit::proxy::{NewConnections, Proxy};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;

/// Metrics that dashboards and alerts depend on.
const METRICS: [&str; 15] = [
    "outbox_pending_depth",
    "outbox_pending_estimate",
    "outbox_count_capped",
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
    let harness = Harness::start().await;
    let refused = instruction("seen", 1, RAIL).idempotency_key;
    harness.bank.set_faults(&json!({"for_key": {(refused): ["refuse"]}})).await;
    let relayer =
        harness.start_relayer(&harness.settings().payment_defaults().payment("repair_every", "'1s'")).await;
    harness.enqueue("seen", 5).await;
    until("all are counted", DEFAULT_TIMEOUT, async || relayer.metric_sum("symphony_attempts_total").await == 5)
        .await
        .unwrap();
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
    // The relayer reads the database's gauges every few seconds.
    until("the dead letter is counted", DEFAULT_TIMEOUT, async || {
        relayer.metric_sum("symphony_dlq_depth").await == 1
    })
    .await
    .unwrap();
    let passes = async || relayer.metric_sum("symphony_repair_passes_total").await >= 2;
    until("repair passes are counted", DEFAULT_TIMEOUT, passes).await.unwrap();
    // The database runs on this machine, so the offset is at most the time that the query takes.
    let offset =
        text.lines().find_map(|line| line.strip_prefix("symphony_database_clock_offset_seconds ")).unwrap();
    assert!(offset.parse::<f64>().unwrap().abs() < 3.0, "{offset}");
    assert!(text.contains("\nsymphony_ledger_partitions_ahead 4\n"), "{text}");
    assert_eq!(relayer.get("/healthz").await, (200, "ok\n".to_owned()));
    assert_eq!(relayer.get("/unknown").await.0, 404);
    relayer.stop().await;
}

#[tokio::test]
async fn a_backlog_beyond_the_limit_of_the_counts_keeps_every_gauge() {
    let harness = Harness::start().await;
    let superuser = harness.superuser().await;
    let pause = format!("select symphony.pause_payment_rail('{RAIL}', 'test', 'maintenance')");
    superuser.batch_execute(&pause).await.unwrap();
    // The last one is under a lease that has expired, behind more rows than are counted.
    let backlog = "insert into symphony.payment_outbox_pending
                     (instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at,
                      claimed_by, claimed_at, lease_token, lease_expires_at)
                   select 'backlog-' || i, 'backlog-' || i, 1, 'key', $1::text, '{}', now() - interval '1 hour' + i * interval '1 millisecond',
                          l.worker, l.at, l.token, l.at
                   from generate_series(1, 12000) i
                   left join (values (12000, 'gone', now(), gen_random_uuid())) as l (place, worker, at, token) on l.place = i";
    superuser.execute(backlog, &[&RAIL]).await.unwrap();

    let relayer = harness.start_relayer(&harness.settings().payment("repair_every", "'1s'")).await;
    let text = relayer.metrics().await;
    let gauge = |name: &str| {
        let line = format!("symphony_{name}{{lane=\"payment\",rail=\"{RAIL}\"}} ");
        let value = text.lines().find_map(|found| found.strip_prefix(&line)?.parse::<f64>().ok());
        value.unwrap_or_else(|| panic!("{name} is not in:\n{text}"))
    };
    assert_eq!((gauge("outbox_pending_depth"), gauge("outbox_due")), (10_000.0, 10_000.0));
    assert_eq!((gauge("outbox_count_capped"), gauge("stuck_dispatching_count")), (1.0, 0.0));
    assert!(gauge("oldest_due_age_seconds") >= 3590.0, "{text}");
    let estimate =
        text.lines().find_map(|line| line.strip_prefix("symphony_outbox_pending_estimate{lane=\"payment\"} "));
    assert!(estimate.unwrap().parse::<i64>().unwrap() >= 10_000, "{text}");
    // Repair finds the lease that the gauge does not show.
    let repaired = async || relayer.metric_sum("symphony_reaper_requeues_total").await == 1;
    until("the lease is repaired", DEFAULT_TIMEOUT, repaired).await.unwrap();
    relayer.stop().await;
}

/// A restore of the pending table alone leaves rows whose payments the ledger has already ended.
#[tokio::test]
async fn a_payment_that_had_ended_already_is_counted_by_the_terminal_backstop_and_not_sent_again() {
    let harness = Harness::start().await;
    let relayer = harness.start_relayer(&harness.settings().payment("repair_every", "'1s'")).await;
    harness.enqueue("restored", 3).await;
    harness.wait_until_drained().await;
    assert_eq!(relayer.metric_sum("symphony_terminal_backstop_total").await, 0);
    let again = "insert into symphony.payment_outbox_pending
                   (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at)
                 select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at
                 from symphony.payment_outbox_attempts";
    harness.superuser().await.batch_execute(again).await.unwrap();
    relayer.wait_for_log("they are in quarantine").await;
    until("it is counted", DEFAULT_TIMEOUT, async || {
        relayer.metric_sum("symphony_terminal_backstop_total").await == 3
    })
    .await
    .unwrap();
    assert_eq!(harness.query_number("select count(*) from symphony.quarantined_outboxes").await, 3);
    assert_eq!(harness.query_number("select count(*) from symphony.payment_outbox_attempts").await, 3);
    harness.reconcile().await;
    relayer.stop().await;
}

/// Renewals are answered all the time: only claims fail.
#[tokio::test]
async fn a_relayer_whose_claims_are_refused_is_not_ready() {
    let harness = Harness::start().await;
    harness.bank.set_faults(&json!({"latency": "60s"})).await;
    let relayer = harness.start_relayer(&harness.settings()).await;
    harness.enqueue("running", 1).await;
    harness.bank.wait_for_received(1).await;
    assert_eq!(relayer.metric_sum("symphony_claims_failing").await, 0);
    let claim = "execute on function symphony.claim_outbox_batch";
    let superuser = harness.superuser().await;
    superuser.batch_execute(&format!("revoke {claim} from symphony_executor")).await.unwrap();
    let unready = (503, "claims fail: see the log\n".to_owned());
    until("it is not ready", 2 * DEFAULT_TIMEOUT, async || relayer.get("/readyz").await == unready).await.unwrap();
    assert_eq!(relayer.metric_sum("symphony_claims_failing").await, 1);

    superuser.batch_execute(&format!("grant {claim} to symphony_executor")).await.unwrap();
    until("it is ready again", 2 * DEFAULT_TIMEOUT, async || relayer.get("/readyz").await.0 == 200).await.unwrap();
    assert_eq!(relayer.metric_sum("symphony_claims_failing").await, 0);
    relayer.program.kill9().await.unwrap();
}

/// A relayer is unready after half a minute without its database. Both relayers are checked in that time.
#[tokio::test]
async fn it_is_ready_as_long_as_the_database_answers_and_whatever_the_bank_does() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    // The circuit breaker of this relayer's only rail stays open for an hour, so it has no query to run.
    harness.bank.set_faults(&json!({"error_500_before": "1"})).await;
    let mut settings = harness.settings().payment("repair_every", "'0s'");
    settings.extra = "[payment.breaker]\nfailures = 1\nopen_for = '1h'\nmax_open_for = '1h'\n".to_owned();
    let idle = harness.start_relayer(&settings).await;
    harness.enqueue("waiting", 1).await;
    idle.wait_for_log("circuit breaker opened").await;

    let mut settings = harness.settings();
    settings.url = network.url().to_owned();
    let cut = harness.start_relayer(&settings).await;
    until("it is ready", DEFAULT_TIMEOUT, async || cut.get("/readyz").await == (200, "ready\n".to_owned()))
        .await
        .unwrap();
    network.cut(NewConnections::Refuse).await;
    let unready = (503, "the database does not answer\n".to_owned());
    until("it is not ready", 2 * DEFAULT_TIMEOUT, async || cut.get("/readyz").await == unready).await.unwrap();
    assert_eq!(cut.get("/healthz").await.0, 200, "the process is alive");
    assert_eq!(idle.get("/readyz").await, (200, "ready\n".to_owned()), "its database answers");

    network.accept().await.unwrap();
    until("it is ready again", DEFAULT_TIMEOUT, async || cut.get("/readyz").await.0 == 200).await.unwrap();
    harness.bank.set_faults(&json!({"preset": "none"})).await;
    harness.reconcile().await;
    cut.stop().await;
    idle.stop().await;
}
