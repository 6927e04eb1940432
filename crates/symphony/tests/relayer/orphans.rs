//! The database loses the enqueue of a payment that is at the bank: the relayer keeps what the bank has answered.

use serde_json::{Value, json};
use symphony_testkit::proxy::{NewConnections, Proxy};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;
use crate::relayer::Relayer;

/// As a failover to a standby that had not received the enqueues: neither rows nor keys.
const LOSE: &str = "alter table symphony.payment_outbox_pending disable trigger pending_goes_when_it_has_ended;
                    alter table symphony.payment_outbox_keys disable trigger keys_are_kept;
                    delete from symphony.payment_outbox_pending;
                    delete from symphony.payment_outbox_keys;
                    alter table symphony.payment_outbox_pending enable always trigger pending_goes_when_it_has_ended;
                    alter table symphony.payment_outbox_keys enable always trigger keys_are_kept";

/// The orphan that the relayer logs, and the only row that the database keeps.
async fn orphan(harness: &Harness, relayer: &Relayer) -> (Value, Value) {
    let line = relayer.wait_for_log("ORPHANED_OUTCOME").await;
    let operator = harness.database.connect_as("symphony_operator").await.unwrap();
    let row = operator.query_one("select to_jsonb(o)::text from symphony.orphaned_outcomes o", &[]).await.unwrap();
    let (line, row) = (serde_json::from_str::<Value>(&line).unwrap(), row.get::<_, String>(0));
    assert_eq!(line["level"], "ERROR", "{line}");
    until("the gauge counts it", DEFAULT_TIMEOUT, async || {
        relayer.metric_sum("symphony_payment_orphans").await == 1
    })
    .await
    .unwrap();
    (line, serde_json::from_str(&row).unwrap())
}

#[tokio::test]
async fn the_answer_of_a_bank_to_a_payment_that_the_database_has_lost_is_kept() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    // The lease outlasts the answer: it is the completion that is refused.
    let mut settings = harness.settings().payment("lease", "'60s'");
    settings.url = network.url().to_owned();
    let relayer = harness.start_relayer(&settings).await;
    harness.bank.set_faults(&json!({"latency": "5s"})).await;
    harness.enqueue("lost", 1).await;
    harness.bank.wait_for_received(1).await;
    network.cut(NewConnections::Refuse).await;
    harness.superuser().await.batch_execute(LOSE).await.unwrap();
    until("the bank has executed it", DEFAULT_TIMEOUT, async || harness.bank.ledger().await.len() == 1)
        .await
        .unwrap();
    network.accept().await.unwrap();

    let (line, row) = orphan(&harness, &relayer).await;
    assert_eq!((&line["kind"], &line["rail"]), (&json!("UNKNOWN_OUTBOX"), &json!(RAIL)), "{line}");
    let found = (&row["kind"], &row["state"], &row["rail_type"], &row["epoch"]);
    assert_eq!(found, (&json!("UNKNOWN_OUTBOX"), &json!("DISPATCHED"), &json!(RAIL), &json!(1)), "{row}");
    for known in
        ["rail_reference", "idempotency_key", "instruction_id", "participant_id", "endpoint", "claimed_at"]
    {
        assert!(row[known].is_string(), "{known}: {row}");
    }
    assert_eq!(harness.query_number("select count(*) from symphony.payment_outbox_attempts").await, 0);
    relayer.stop().await;
}

#[tokio::test]
async fn an_answer_whose_lease_ends_while_the_database_is_away_is_kept() {
    let harness = Harness::start().await;
    let network = Proxy::in_front_of(&harness.url).unwrap();
    let mut settings = harness.settings().payment("lease", "'12s'").payment("repair_every", "'1s'");
    settings.url = network.url().to_owned();
    let relayer = harness.start_relayer(&settings).await;
    harness.bank.set_faults(&json!({"latency": "4s"})).await;
    harness.enqueue("lost", 1).await;
    harness.bank.wait_for_received(1).await;
    network.cut(NewConnections::Refuse).await;
    harness.superuser().await.batch_execute(LOSE).await.unwrap();
    relayer.wait_for_log("an outcome could not be recorded").await;
    network.accept().await.unwrap();
    let (_, row) = orphan(&harness, &relayer).await;
    assert_eq!(row["state"], "DISPATCHED", "{row}");
    assert!(row["rail_reference"].is_string() && row["idempotency_key"].is_string(), "{row}");
    relayer.stop().await;
}

#[tokio::test]
async fn a_payment_that_the_database_loses_during_its_dispatch_is_kept_with_an_unknown_outcome() {
    let harness = Harness::start().await;
    let settings = harness.settings().payment("lease", "'6s'").payment("repair_every", "'1s'");
    let relayer = harness.start_relayer(&settings).await;
    harness.bank.set_faults(&json!({"latency": "60s"})).await;
    harness.enqueue("lost", 1).await;
    harness.bank.wait_for_received(1).await;
    // The next renewal does not find the lease, and the dispatch is cancelled.
    harness.superuser().await.batch_execute(LOSE).await.unwrap();

    let (line, row) = orphan(&harness, &relayer).await;
    assert_eq!(line["error_code"], "OUTCOME_UNKNOWN", "{line}");
    assert_eq!((&row["state"], &row["error_code"]), (&json!("RETRYABLE"), &json!("OUTCOME_UNKNOWN")), "{row}");
    assert!(row["idempotency_key"].is_string() && row["endpoint"].is_string(), "{row}");
    relayer.stop().await;
}

#[tokio::test]
async fn a_lease_that_another_worker_has_taken_over_leaves_no_orphan() {
    let harness = Harness::start().await;
    let settings = harness.settings().payment("lease", "'6s'").payment("repair_every", "'1s'");
    let relayer = harness.start_relayer(&settings).await;
    harness.bank.set_faults(&json!({"latency": "60s"})).await;
    harness.enqueue("taken", 1).await;
    harness.bank.wait_for_received(1).await;
    harness.bank.set_faults(&json!({"latency": "0ms"})).await;
    harness.expire_leases().await;
    relayer.wait_for_log("its dispatch is cancelled").await;
    harness.wait_until_drained().await;
    // The report of a later repair would have it.
    let passes = relayer.metric_sum("symphony_repair_passes_total").await;
    until("two repairs have run", DEFAULT_TIMEOUT, async || {
        relayer.metric_sum("symphony_repair_passes_total").await >= passes + 2
    })
    .await
    .unwrap();
    assert_eq!(harness.query_number("select count(*) from symphony.payment_orphans").await, 0);
    relayer.stop().await;
}

#[tokio::test]
async fn a_first_attempt_that_the_bank_answers_as_a_replay_is_recorded_and_completed() {
    let before = Harness::start().await;
    let relayer = before.start_relayer(&before.settings()).await;
    before.enqueue("again", 1).await;
    before.reconcile().await;
    relayer.stop().await;
    // The producer enqueues it again, in a database that was restored from before the payment. Its number is of the new epoch.
    let mut after = Harness::start().await;
    after.bank = before.bank;
    after.open_epoch().await;
    let relayer = after.start_relayer(&after.settings()).await;
    after.enqueue("again", 1).await;
    let (line, row) = orphan(&after, &relayer).await;
    assert_eq!(line["kind"], "REPLAYED_FIRST_ATTEMPT", "{line}");
    assert_eq!((&row["kind"], &row["state"]), (&json!("REPLAYED_FIRST_ATTEMPT"), &json!("DISPATCHED")), "{row}");
    let dispatched = "select count(*) from symphony.payment_outbox_attempts where state = 'DISPATCHED'";
    assert_eq!(after.query_number(dispatched).await, 1, "the payment is completed as any other");
    assert_eq!(after.bank.ledger().await.len(), 1, "the bank paid once");
    relayer.stop().await;
}

#[tokio::test]
async fn a_key_that_the_bank_knows_for_another_body_is_inquired_about_and_not_recorded_as_refused() {
    let before = Harness::start().await;
    let relayer = before.start_relayer(&before.settings()).await;
    before.enqueue("again", 1).await;
    before.reconcile().await;
    relayer.stop().await;
    // The producer enqueues the key again with another amount, which the restored database cannot know.
    let mut after = Harness::start().await;
    after.bank = before.bank;
    after.open_epoch().await;
    let mut instruction = instruction("again", 0, RAIL);
    instruction.payload =
        json!({"amount": "99.00", "currency": "EUR", "destination": {"iban": "DE02120300000000202051"}}).into();
    after.producer().enqueue(&instruction).await;
    let relayer = after.start_relayer(&after.settings()).await;
    after.wait_until_drained().await;
    let requests = after.bank.requests_for(&instruction.idempotency_key).await;
    let outcomes: Vec<_> = requests.iter().map(|(_, outcome)| outcome.as_str()).collect();
    assert_eq!(outcomes, ["EXECUTED", "KEY_REUSED", "FOUND"]);
    let recorded = "select string_agg(concat_ws(' ', state, rail_code, error_code), ', ' order by attempt_no)
                    from symphony.payment_outbox_attempts";
    let recorded: String = after.superuser().await.query_one(recorded, &[]).await.unwrap().get(0);
    assert_eq!(recorded, "RETRYABLE KEY_REUSED OUTCOME_UNKNOWN, DISPATCHED HTTP 200");
    assert_eq!(after.bank.ledger().await.len(), 1, "the bank paid once");
    relayer.stop().await;
}
