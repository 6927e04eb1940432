//! The circuit breaker while a bank is down: rows stay pending, use up few attempts, and leave when it is back.

use std::hash::{BuildHasher as _, RandomState};

use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::bank::Bank;
use crate::harness::Harness;

const ROWS: usize = 40;
const SLOTS: usize = 4;
const FAILURES: usize = 3;
/// Half-open probes to wait for while the bank is down.
const PROBES: usize = 4;

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
    let probes = async || relayer.log_count("circuit breaker half-open").await;
    until("the relayer has probed", DEFAULT_TIMEOUT, async || probes().await >= PROBES).await.unwrap();

    let attempts = harness.query_number("select count(*) from symphony.payment_outbox_attempts").await;
    let probes = probes().await;
    // Dispatches that ran when the breaker opened, and one for each probe since.
    let most = FAILURES - 1 + SLOTS + probes;
    assert!(attempts <= i64::try_from(most).unwrap(), "{attempts} attempts with {probes} probes");
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
