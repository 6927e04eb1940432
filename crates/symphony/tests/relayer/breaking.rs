//! A bank that is down: it is left alone, its rows stay pending and burn few attempts, and all is carried when it is back.

use std::hash::{BuildHasher as _, RandomState};

use symphony_proof::kit::wait::{BOUND, until};

use crate::bank::Bank;
use crate::yard::Yard;

const ROWS: usize = 40;
const SLOTS: usize = 4;
const FAILURES: usize = 3;
/// How often it is tried while it is down.
const PROBES: usize = 4;

/// A bank on a ledger and at a port that it can come back to: below those that systems give out by themselves.
async fn lasting_bank(ledger: &str) -> Bank {
    let port = 12_000 + RandomState::new().hash_one(ledger) % 6_000;
    Bank::start(&["--ledger", ledger, "--listen", &format!("127.0.0.1:{port}")]).await
}

#[tokio::test]
async fn a_bank_that_is_down_burns_few_attempts_and_is_paid_when_it_is_back() {
    let mut yard = Yard::open().await;
    let ledger = yard.folder.path().join("bank.jsonl");
    let ledger = ledger.to_str().unwrap();
    yard.bank = lasting_bank(ledger).await;
    let address = yard.bank.address().to_string();
    let mut orders = yard.orders().payment("slots", &SLOTS.to_string());
    orders.more =
        format!("[payment.breaker]\nfailures = {FAILURES}\nfirst_pause = '200ms'\nlongest_pause = '400ms'\n");
    yard.bank.kill9().await;
    let relayer = yard.relayer(&orders).await;
    yard.enqueue("waiting", ROWS).await;
    relayer.says("circuit breaker opened").await;
    until("it is shown", BOUND, async || relayer.count("symphony_breaker_open").await == 1).await.unwrap();
    let probes = async || relayer.heard("circuit breaker half-open").await;
    until("it was tried again", BOUND, async || probes().await >= PROBES).await.unwrap();

    let attempts = yard.number("select count(*) from symphony.payment_outbox_attempts").await;
    let probes = probes().await;
    // Those that ran when it was left alone, and one for each try since.
    let most = FAILURES - 1 + SLOTS + probes;
    assert!(attempts <= i64::try_from(most).unwrap(), "{attempts} attempts with {probes} tries");
    assert_eq!(yard.pending().await, i64::try_from(ROWS).unwrap());

    yard.bank = Bank::start(&["--ledger", ledger, "--listen", &address]).await;
    let report = yard.audit().await;
    assert_eq!(report.counts.dispatched, ROWS);
    relayer.says("circuit breaker closed").await;
    until("that is shown", BOUND, async || relayer.count("symphony_breaker_open").await == 0).await.unwrap();
    relayer.stop().await;
}
