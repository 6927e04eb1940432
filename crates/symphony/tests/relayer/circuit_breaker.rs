//! The circuit breaker: while a bank is down, rows stay pending, use up few attempts, and leave when it is back. Rows
//! that a bank cannot process do not stop the others.

use std::hash::{BuildHasher as _, RandomState};

use serde_json::json;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::bank::Bank;
use crate::harness::{Harness, RAIL};
use crate::producers::instruction;

const ROWS: usize = 40;
const SLOTS: usize = 4;
const FAILURES: usize = 3;
/// Rounds of half-open probes to wait for while the bank is down.
const ROUNDS: usize = 4;
/// Probes of a round.
const PROBES: usize = 3;

/// A bank that can restart on the same ledger and port. The port is below the ephemeral range.
async fn restartable_bank(ledger: &str) -> Bank {
    let port = 12_000 + RandomState::new().hash_one(ledger) % 6_000;
    Bank::start(&["--ledger", ledger, "--listen", &format!("127.0.0.1:{port}")]).await
}

#[tokio::test]
async fn a_bank_that_is_down_burns_few_attempts_and_is_paid_when_it_is_back() {
    let mut harness = Harness::start().await;
    let ledger = harness.folder.path().join("bank.jsonl");
    let ledger = ledger.to_str().unwrap();
    harness.bank = restartable_bank(ledger).await;
    let address = harness.bank.address().to_string();
    let mut settings = harness.settings().payment("slots", &SLOTS.to_string());
    settings.extra =
        format!("[payment.breaker]\nfailures = {FAILURES}\nopen_for = '200ms'\nmax_open_for = '400ms'\n");
    harness.bank.kill9().await;
    let relayer = harness.start_relayer(&settings).await;
    harness.enqueue("waiting", ROWS).await;
    relayer.wait_for_log("circuit breaker opened").await;
    until("the open breaker is exported", DEFAULT_TIMEOUT, async || {
        relayer.metric_sum("symphony_breaker_open").await == 1
    })
    .await
    .unwrap();
    let rounds = async || relayer.log_count("circuit breaker half-open").await;
    until("the relayer has probed", DEFAULT_TIMEOUT, async || rounds().await >= ROUNDS).await.unwrap();

    let attempts = harness.query_number("select count(*) from symphony.payment_outbox_attempts").await;
    let rounds = rounds().await;
    // Dispatches that ran when the rail became suspect, and the probes since.
    let most = FAILURES - 1 + SLOTS + PROBES * rounds;
    assert!(attempts <= i64::try_from(most).unwrap(), "{attempts} attempts with {rounds} rounds of probes");
    assert_eq!(harness.pending_count().await, i64::try_from(ROWS).unwrap());

    harness.bank = Bank::start(&["--ledger", ledger, "--listen", &address]).await;
    let report = harness.reconcile().await;
    assert_eq!(report.counts.dispatched, ROWS);
    relayer.wait_for_log("circuit breaker closed").await;
    until("the closed breaker is exported", DEFAULT_TIMEOUT, async || {
        relayer.metric_sum("symphony_breaker_open").await == 0
    })
    .await
    .unwrap();
    relayer.stop().await;
}

#[tokio::test]
async fn a_hundred_payments_that_the_bank_cannot_process_do_not_stop_the_others() {
    const POISON: usize = 100;
    const HEALTHY: usize = 200;
    let harness = Harness::start().await;
    let keys = (0..POISON).map(|number| instruction("poison", number, RAIL).idempotency_key);
    let faults: serde_json::Map<_, _> = keys.map(|key| (key, json!(vec!["error_500_before"; 30]))).collect();
    harness.bank.set_faults(&json!({"for_key": faults})).await;
    // They are the oldest, and retried for as long as the test takes.
    harness.enqueue("poison", POISON).await;
    harness.enqueue("healthy", HEALTHY).await;
    let mut settings = harness.settings().payment("slots", "8");
    settings.extra = "[payment.breaker]\nfailures = 5\nopen_for = '1s'\nmax_open_for = '60s'\n".to_owned();
    let relayer = harness.start_relayer(&settings).await;
    let left = "select count(*) from symphony.payment_outbox_pending where instruction_id like 'healthy%'";
    until("the healthy payments are dispatched", 2 * DEFAULT_TIMEOUT, async || {
        harness.query_number(left).await == 0
    })
    .await
    .unwrap();
    // Most of them have not even been tried by then: the probes found payments that the bank can process.
    let opened = relayer.log_count("circuit breaker opened").await;
    assert!(opened <= 1, "the breaker opened {opened} times");
    relayer.program.kill9().await.unwrap();
}
