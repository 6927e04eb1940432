//! Proof 29: after an unknown outcome the relayer asks the bank before it sends again.

use serde_json::{Value, json};

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;
use crate::relayer::Settings;

/// Faults after the bank has executed the payment. The relayer cannot tell them from [`FAULTS_BEFORE_EXECUTION`].
const FAULTS_AFTER_EXECUTION: [&str; 4] = ["timeout_after", "cut_after", "half_answer", "error_500_after"];
const FAULTS_BEFORE_EXECUTION: [&str; 3] = ["timeout_before", "cut_before", "error_500_before"];

/// State and error code of an attempt.
type AttemptResult = (String, Option<String>);

/// The kind and outcome of each request to the bank, and the results of the first and the last attempt.
type History = (Vec<(String, String)>, (AttemptResult, AttemptResult));

/// Settings with a circuit breaker that never opens.
fn settings(harness: &Harness) -> Settings {
    let mut settings = harness.settings().payment_defaults();
    settings.extra = "[payment.breaker]\nfailures = 1000".to_owned();
    settings
}

fn key(name: &str) -> String {
    instruction(name, 0, RAIL).idempotency_key
}

/// Enqueues one payment whose requests meet these faults in turn, and waits until it has ended.
async fn pay(harness: &Harness, name: &str, faults: &[&str]) -> History {
    enqueue(harness, name, faults).await;
    harness.wait_until_drained().await;
    history(harness, name).await
}

async fn enqueue(harness: &Harness, name: &str, faults: &[&str]) {
    harness.bank.set_faults(&json!({"for_key": {(key(name)): faults}})).await;
    harness.enqueue(name, 1).await;
}

async fn history(harness: &Harness, name: &str) -> History {
    let attempts = "select state::text, error_code from symphony.payment_outbox_attempts
                    where idempotency_key = $1 order by attempt_no";
    let attempts = harness.superuser().await.query(attempts, &[&key(name)]).await.unwrap();
    let result = |index: usize| (attempts[index].get(0), attempts[index].get(1));
    (harness.bank.requests_for(&key(name)).await, (result(0), result(attempts.len() - 1)))
}

fn unknown(state: &str) -> AttemptResult {
    (state.to_owned(), Some("OUTCOME_UNKNOWN".to_owned()))
}

fn dispatched() -> AttemptResult {
    ("DISPATCHED".to_owned(), None)
}

fn owned(requests: &[(&str, &str)]) -> Vec<(String, String)> {
    requests.iter().map(|(kind, outcome)| ((*kind).to_owned(), (*outcome).to_owned())).collect()
}

#[tokio::test]
async fn the_bank_is_asked_before_anything_is_sent_again() {
    let harness = Harness::start().await;
    let relayer =
        harness.start_relayer(&settings(&harness).rail_lines("timeout = '5s'\nconnect_timeout = '4s'")).await;
    for fault in FAULTS_AFTER_EXECUTION.iter().chain(&FAULTS_BEFORE_EXECUTION) {
        enqueue(&harness, fault, &[fault]).await;
    }
    // The bank answers no inquiry for a while.
    enqueue(&harness, "silent", &["cut_before", "inquiry_down", "inquiry_down"]).await;
    harness.wait_until_drained().await;

    let found = [("payment", "EXECUTED"), ("inquiry", "FOUND")];
    for fault in FAULTS_AFTER_EXECUTION {
        assert_eq!(
            history(&harness, fault).await,
            (owned(&found), (unknown("RETRYABLE"), dispatched())),
            "{fault}"
        );
    }
    let sent_again = [("payment", "NOTHING"), ("inquiry", "UNKNOWN_KEY"), ("payment", "EXECUTED")];
    for fault in FAULTS_BEFORE_EXECUTION {
        assert_eq!(
            history(&harness, fault).await,
            (owned(&sent_again), (unknown("RETRYABLE"), dispatched())),
            "{fault}"
        );
    }
    // The relayer sends nothing until the bank answers.
    let inquiries_first =
        [sent_again[0], ("inquiry", "NOTHING"), ("inquiry", "NOTHING"), sent_again[1], sent_again[2]];
    assert_eq!(history(&harness, "silent").await, (owned(&inquiries_first), (unknown("RETRYABLE"), dispatched())));
    harness.reconcile().await;
    relayer.stop().await;
}

#[tokio::test]
async fn what_is_unknown_after_the_last_attempt_moves_to_the_dead_letter_queue() {
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({"max_attempts": 3})).await;
    let relayer = harness.start_relayer(&settings(&harness)).await;
    let (requests, results) =
        pay(&harness, "silent", &["cut_after", "inquiry_down", "inquiry_down", "inquiry_down"]).await;
    assert_eq!(requests, owned(&[("payment", "EXECUTED"), ("inquiry", "NOTHING"), ("inquiry", "NOTHING")]));
    assert_eq!(results, (unknown("RETRYABLE"), unknown("FAILED")));
    let report = harness.reconcile().await;
    assert_eq!((report.counts.unknown, report.counts.executed), (1, 1));
    relayer.stop().await;
}

#[tokio::test]
async fn a_rail_that_deduplicates_gets_a_resend_while_it_remembers_the_key() {
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({"on_unknown": "RESEND"})).await;
    let relayer = harness.start_relayer(&settings(&harness).without_inquiry()).await;
    let (requests, results) = pay(&harness, "remembered", &["cut_after"]).await;
    assert_eq!(requests, owned(&[("payment", "EXECUTED"), ("payment", "REPLAYED")]));
    assert_eq!(results, (unknown("RETRYABLE"), dispatched()));

    // The bank remembers keys for less time than one more request may take.
    harness.set_rail(RAIL, &json!({"on_unknown": "RESEND", "key_memory_seconds": 1})).await;
    let (requests, results) = pay(&harness, "forgotten", &["cut_after"]).await;
    assert_eq!(requests, owned(&[("payment", "EXECUTED")]));
    assert_eq!(results, (unknown("RETRYABLE"), unknown("FAILED")));
    harness.reconcile().await;
    relayer.stop().await;
}

#[tokio::test]
async fn a_rail_whose_policy_is_to_stop_is_sent_nothing_twice() {
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({"on_unknown": "STOP"})).await;
    let relayer = harness.start_relayer(&settings(&harness).without_inquiry()).await;
    for (name, fault, outcome) in [("paid", "cut_after", "EXECUTED"), ("unpaid", "cut_before", "NOTHING")] {
        let (requests, results) = pay(&harness, name, &[fault]).await;
        assert_eq!(requests, owned(&[("payment", outcome)]));
        assert_eq!(results, (unknown("RETRYABLE"), unknown("FAILED")));
    }
    let report = harness.reconcile().await;
    assert_eq!((report.counts.unknown, report.counts.executed), (2, 1));
    relayer.stop().await;
}

#[tokio::test]
async fn a_bank_that_forgets_keys_never_pays_one_twice() {
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({"key_memory_seconds": 1, "on_unknown": "RESEND"})).await;
    let faults: Value = json!({"seed": 7, "forget_after": "3keys", "cut_after": "0.3", "error_500_after": "0.2", "half_answer": "0.1"});
    harness.bank.set_faults(&faults).await;
    let relayer = harness.start_relayer(&settings(&harness)).await;
    harness.enqueue("forgotten", 60).await;
    let report = harness.reconcile().await;
    // Payments that met a fault and whose key was forgotten are dead letters. The bank executed all of them.
    assert!(report.counts.unknown > 0, "{report}");
    assert_eq!(report.counts.executed, 60, "{report}");
    assert!(report.unknown.iter().all(|letter| letter.executed.is_some()), "{report}");
    relayer.stop().await;
}
