//! Proof 29: nobody knows whether it was paid. The bank is asked before anything is sent again, and nothing is guessed.

use serde_json::{Value, json};

use crate::load::instruction;
use crate::relayer::Orders;
use crate::yard::{RAIL, Yard};

/// The faults after which the money has left, and those after which it has not; the sender cannot tell.
const AFTER: [&str; 4] = ["timeout_after", "cut_after", "half_answer", "error_500_after"];
const BEFORE: [&str; 3] = ["timeout_before", "cut_before", "error_500_before"];

/// How the first attempt ended, and how the last one did: state and error code.
type Ends = ((String, Option<String>), (String, Option<String>));

/// A relayer that never leaves the rail alone.
fn orders(yard: &Yard) -> Orders {
    let mut orders = yard.orders().defaults();
    orders.more = "[payment.breaker]\nfailures = 1000".to_owned();
    orders
}

/// The same for a rail that cannot be asked.
fn orders_without_inquiry(yard: &Yard) -> Orders {
    let mut orders = orders(yard);
    for section in orders.rails.values_mut() {
        *section = section.lines().filter(|line| !line.starts_with("inquiry_url")).collect::<Vec<_>>().join("\n");
    }
    orders
}

fn key(name: &str) -> String {
    instruction(name, 0, RAIL).idempotency_key
}

/// Pays one whose sendings and inquiries meet these faults; what the bank was asked, and how it ended.
async fn pay(yard: &Yard, name: &str, faults: &[&str]) -> (Vec<(String, String)>, Ends) {
    enqueue(yard, name, faults).await;
    yard.is_done().await;
    told(yard, name).await
}

async fn enqueue(yard: &Yard, name: &str, faults: &[&str]) {
    yard.bank.order(&json!({"for_key": {(key(name)): faults}})).await;
    yard.enqueue(name, 1).await;
}

async fn told(yard: &Yard, name: &str) -> (Vec<(String, String)>, Ends) {
    let attempts = "select state::text, error_code from symphony.payment_outbox_attempts
                    where idempotency_key = $1 order by attempt_no";
    let attempts = yard.owner().await.query(attempts, &[&key(name)]).await.unwrap();
    let end = |place: usize| (attempts[place].get(0), attempts[place].get(1));
    (yard.bank.story(&key(name)).await, (end(0), end(attempts.len() - 1)))
}

fn unknown(state: &str) -> (String, Option<String>) {
    (state.to_owned(), Some("OUTCOME_UNKNOWN".to_owned()))
}

fn dispatched() -> (String, Option<String>) {
    ("DISPATCHED".to_owned(), None)
}

fn asked(story: &[(&str, &str)]) -> Vec<(String, String)> {
    story.iter().map(|(kind, outcome)| ((*kind).to_owned(), (*outcome).to_owned())).collect()
}

#[tokio::test]
async fn the_bank_is_asked_before_anything_is_sent_again() {
    let yard = Yard::open().await;
    let relayer = yard.relayer(&orders(&yard).of_rails("timeout = '5s'\nconnect_timeout = '4s'")).await;
    for fault in AFTER.iter().chain(&BEFORE) {
        enqueue(&yard, fault, &[fault]).await;
    }
    // The bank does not say for a while.
    enqueue(&yard, "mute", &["cut_before", "inquiry_down", "inquiry_down"]).await;
    yard.is_done().await;

    let found = [("payment", "EXECUTED"), ("inquiry", "FOUND")];
    for fault in AFTER {
        assert_eq!(told(&yard, fault).await, (asked(&found), (unknown("RETRYABLE"), dispatched())), "{fault}");
    }
    let sent_again = [("payment", "NOTHING"), ("inquiry", "UNKNOWN_KEY"), ("payment", "EXECUTED")];
    for fault in BEFORE {
        assert_eq!(
            told(&yard, fault).await,
            (asked(&sent_again), (unknown("RETRYABLE"), dispatched())),
            "{fault}"
        );
    }
    // Nothing is sent until it does.
    let patient = [sent_again[0], ("inquiry", "NOTHING"), ("inquiry", "NOTHING"), sent_again[1], sent_again[2]];
    assert_eq!(told(&yard, "mute").await, (asked(&patient), (unknown("RETRYABLE"), dispatched())));
    yard.audit().await;
    relayer.stop().await;
}

#[tokio::test]
async fn what_is_unknown_to_the_last_attempt_goes_to_people() {
    let yard = Yard::open().await;
    yard.rail(RAIL, &json!({"max_attempts": 3})).await;
    let relayer = yard.relayer(&orders(&yard)).await;
    let (story, ends) = pay(&yard, "mute", &["cut_after", "inquiry_down", "inquiry_down", "inquiry_down"]).await;
    assert_eq!(story, asked(&[("payment", "EXECUTED"), ("inquiry", "NOTHING"), ("inquiry", "NOTHING")]));
    assert_eq!(ends, (unknown("RETRYABLE"), unknown("FAILED")));
    let report = yard.audit().await;
    assert_eq!((report.counts.unknown, report.counts.executed), (1, 1));
    relayer.stop().await;
}

#[tokio::test]
async fn a_rail_that_drops_repeats_gets_one_while_it_remembers_the_key() {
    let yard = Yard::open().await;
    yard.rail(RAIL, &json!({"on_unknown": "RESEND"})).await;
    let relayer = yard.relayer(&orders_without_inquiry(&yard)).await;
    let (story, ends) = pay(&yard, "remembered", &["cut_after"]).await;
    assert_eq!(story, asked(&[("payment", "EXECUTED"), ("payment", "REPLAYED")]));
    assert_eq!(ends, (unknown("RETRYABLE"), dispatched()));

    // It remembers for less than one more sending may take.
    yard.rail(RAIL, &json!({"on_unknown": "RESEND", "key_memory_seconds": 1})).await;
    let (story, ends) = pay(&yard, "forgotten", &["cut_after"]).await;
    assert_eq!(story, asked(&[("payment", "EXECUTED")]));
    assert_eq!(ends, (unknown("RETRYABLE"), unknown("FAILED")));
    yard.audit().await;
    relayer.stop().await;
}

#[tokio::test]
async fn a_rail_whose_policy_is_to_stop_is_sent_nothing_twice() {
    let yard = Yard::open().await;
    yard.rail(RAIL, &json!({"on_unknown": "STOP"})).await;
    let relayer = yard.relayer(&orders_without_inquiry(&yard)).await;
    for (name, fault, outcome) in [("paid", "cut_after", "EXECUTED"), ("unpaid", "cut_before", "NOTHING")] {
        let (story, ends) = pay(&yard, name, &[fault]).await;
        assert_eq!(story, asked(&[("payment", outcome)]));
        assert_eq!(ends, (unknown("RETRYABLE"), unknown("FAILED")));
    }
    let report = yard.audit().await;
    assert_eq!((report.counts.unknown, report.counts.executed), (2, 1));
    relayer.stop().await;
}

#[tokio::test]
async fn a_bank_that_forgets_keys_never_pays_one_twice() {
    let yard = Yard::open().await;
    yard.rail(RAIL, &json!({"key_memory_seconds": 1, "on_unknown": "RESEND"})).await;
    let faults: Value = json!({"seed": 7, "forget_after": "3keys", "cut_after": "0.3", "error_500_after": "0.2", "half_answer": "0.1"});
    yard.bank.order(&faults).await;
    let relayer = yard.relayer(&orders(&yard)).await;
    yard.enqueue("forgotten", 60).await;
    let report = yard.audit().await;
    // Those that met a fault and were forgotten by then are left to people, and all of them were paid.
    assert!(report.counts.unknown > 0, "{report}");
    assert_eq!(report.counts.executed, 60, "{report}");
    assert!(report.unknown.iter().all(|letter| letter.executed.is_some()), "{report}");
    relayer.stop().await;
}
