//! A rail moves to another bank or to another address: what may have been paid at the old endpoint stops at the new one.

use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;

use serde_json::{Value, json};
use symphony_testkit::process::Launch;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio_postgres::Client;

use crate::bank::Bank;
use crate::harness::{Harness, RAIL};
use crate::producers::instruction;
use crate::relayer::Settings;

/// How many payments are under way when the rail moves.
const UNDER_WAY: usize = 16;
/// SIGABRT.
const ABORTED: i32 = 6;

/// Settings that reach the bank at this host and port. The circuit breaker never opens, and only the test expires leases.
fn settings(harness: &Harness, host: &str, bank: SocketAddr) -> Settings {
    let mut settings = harness.settings().payment("lease", "'30s'").payment("call_timeout", "'20s'");
    settings.extra = "[payment.breaker]\nfailures = 1000".to_owned();
    let port = bank.port();
    let section = format!(
        "kind = 'http'\nurl = 'http://{host}:{port}/v1/payments'\n\
         inquiry_url = 'http://{host}:{port}/v1/payments/{{idempotency_key}}'\n\
         allow_http = true\nallow_private = ['127.0.0.1', 'localhost']\n"
    );
    settings.rails.insert(RAIL.to_owned(), section);
    settings
}

/// The endpoint of these settings, as `run --check` prints it.
async fn endpoint(harness: &Harness, settings: &Settings) -> String {
    let checked = settings.launch(harness.folder.path()).args(["--check"]).start().unwrap();
    let is_rail = |line: &str| line.contains(&format!("rail {RAIL} sends to "));
    let line = checked.wait_for_line(is_rail, DEFAULT_TIMEOUT).await.unwrap();
    line.rsplit(' ').next().unwrap().to_owned()
}

/// Runs `symphony rail same-endpoint` as an operator.
async fn declare_same(harness: &Harness, endpoint: &str, same_as: &str) {
    let url = harness.database.url_as_login(&["symphony_operator"]).await.unwrap();
    let declare =
        ["rail", "same-endpoint", RAIL, endpoint, same_as, "--actor", "ana", "--reason", "the bank moved"];
    let declared =
        Launch::new(env!("CARGO_BIN_EXE_symphony")).args(declare).env("DATABASE_URL", url).start().unwrap();
    assert_eq!(declared.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", declared.tail());
    assert!(declared.tail().contains("are declared the same endpoint"), "{}", declared.tail());
}

/// Enqueues payments that a relayer with these settings sends, and whose answers and inquiries the bank then loses.
async fn lose_answers(harness: &Harness, settings: &Settings, name: &str, fault: &str) {
    let unknown = "select count(distinct outbox_id) from symphony.payment_outbox_attempts where error_code = 'OUTCOME_UNKNOWN'";
    let before = harness.query_number(unknown).await;
    harness.bank.set_faults(&json!({(fault): "1", "inquiry_down": "1"})).await;
    harness.enqueue(name, UNDER_WAY).await;
    let relayer = harness.start_relayer(settings).await;
    let all = async || harness.query_number(unknown).await == before + i64::try_from(UNDER_WAY).unwrap();
    until("every outcome is unknown", DEFAULT_TIMEOUT, all).await.unwrap();
    relayer.stop().await;
    harness.bank.set_faults(&json!({(fault): "0", "inquiry_down": "0"})).await;
}

/// The dead letters: each must be an unknown outcome of both endpoints.
async fn stopped(operator: &Client, old: &str, new: &str) -> Vec<String> {
    let letters = "select outbox_id::text, error_code, error_message from symphony.payment_outbox_dlq";
    let letters = operator.query(letters, &[]).await.unwrap();
    for letter in &letters {
        let (code, message): (&str, &str) = (letter.get(1), letter.get(2));
        assert_eq!(code, "OUTCOME_UNKNOWN", "{message}");
        assert!(message.contains(old) && message.contains(new) && message.contains("same-endpoint"), "{message}");
    }
    letters.iter().map(|letter| letter.get(0)).collect()
}

async fn executed_keys(bank: &Bank) -> Vec<String> {
    bank.ledger().await.into_iter().map(|execution| execution.key).collect()
}

async fn endpoints_of_attempts(harness: &Harness) -> Vec<Option<String>> {
    let endpoints = "select distinct endpoint from symphony.payment_outbox_attempts order by 1";
    harness.superuser().await.query(endpoints, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

#[tokio::test]
async fn what_another_bank_may_have_paid_is_neither_inquired_nor_sent() {
    let harness = Harness::start().await;
    let other_bank = Bank::start(&[]).await;
    let old = settings(&harness, "127.0.0.1", harness.bank.address());
    let new = settings(&harness, "127.0.0.1", other_bank.address());
    let (old_endpoint, new_endpoint) = (endpoint(&harness, &old).await, endpoint(&harness, &new).await);
    assert_ne!(old_endpoint, new_endpoint);

    // The old relayer loses answers; another one dies while it dispatches.
    lose_answers(&harness, &old, "lost", "cut_after").await;
    let lost = harness.bank.ledger().await.len();
    assert_eq!(lost, UNDER_WAY);
    let schedule = async |at| {
        let all = format!("update symphony.payment_outbox_pending set next_attempt_at = '{at}'");
        harness.superuser().await.batch_execute(&all).await.unwrap();
    };
    schedule("infinity").await;
    harness.enqueue("killed", UNDER_WAY).await;
    let victim = harness.start_relayer(&old.clone().abort_at("before_complete")).await;
    let status = victim.program.exit(DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(status.signal(), Some(ABORTED), "{}", victim.program.tail());
    let killed = harness
        .query_number("select count(*) from symphony.payment_outbox_pending where lease_token is not null")
        .await;
    assert!(killed > 0 && harness.bank.ledger().await.len() > lost, "{killed} leases");
    schedule("now").await;
    harness.expire_leases().await;

    let successor = harness.start_relayer(&new).await;
    harness.wait_until_drained().await;
    successor.stop().await;
    // The other bank got only what the old one had never been sent.
    let (at_old, at_new) = (executed_keys(&harness.bank).await, executed_keys(&other_bank).await);
    let twice: Vec<_> = at_new.iter().filter(|key| at_old.contains(key)).collect();
    assert!(twice.is_empty(), "executed at both banks: {twice:?}");
    let asked: Vec<_> =
        other_bank.requests().await.into_iter().filter(|request| request.kind == "inquiry").collect();
    assert!(asked.is_empty(), "{asked:?}");
    let operator = harness.database.connect_as("symphony_operator").await.unwrap();
    let stopped = stopped(&operator, &old_endpoint, &new_endpoint).await;
    assert_eq!(i64::try_from(stopped.len()).unwrap(), i64::try_from(UNDER_WAY).unwrap() + killed);
    assert_eq!(at_new.len(), 2 * UNDER_WAY - stopped.len());
    let mut both = [Some(old_endpoint), Some(new_endpoint)];
    both.sort();
    assert_eq!(endpoints_of_attempts(&harness).await, both);
}

#[tokio::test]
async fn after_two_endpoints_are_declared_the_same_the_new_one_is_asked() {
    let harness = Harness::start().await;
    // One bank under two names, as after its address has moved.
    let old = settings(&harness, "127.0.0.1", harness.bank.address());
    let new = settings(&harness, "localhost", harness.bank.address());
    let (old_endpoint, new_endpoint) = (endpoint(&harness, &old).await, endpoint(&harness, &new).await);
    let operator = harness.database.connect_as("symphony_operator").await.unwrap();

    lose_answers(&harness, &old, "stopped", "cut_before").await;
    let relayer = harness.start_relayer(&new).await;
    harness.wait_until_drained().await;
    let letters = stopped(&operator, &old_endpoint, &new_endpoint).await;
    assert_eq!((letters.len(), harness.bank.ledger().await.len()), (UNDER_WAY, 0));
    relayer.stop().await;

    declare_same(&harness, &old_endpoint, &new_endpoint).await;
    lose_answers(&harness, &old, "paid", "cut_after").await;
    assert_eq!(harness.bank.ledger().await.len(), UNDER_WAY);
    let relayer = harness.start_relayer(&new).await;
    harness.wait_until_drained().await;
    let paid = history(&harness, "paid").await;
    assert_eq!(
        paid,
        [("payment", "EXECUTED"), ("inquiry", "FOUND")]
            .map(|(kind, outcome)| (kind.to_owned(), outcome.to_owned()))
    );

    // Of the stopped ones an operator finds that the bank does not have them. Redriven, one of them loses an answer again.
    let key = instruction("stopped", 0, RAIL).idempotency_key;
    harness.bank.set_faults(&json!({"for_key": {(key): ["cut_before"]}})).await;
    for letter in &letters {
        operator
            .execute(
                "select symphony.resolve_payment_outbox($1::text::uuid, 'NOT_PAID', 'ana', 'the bank said so')",
                &[letter],
            )
            .await
            .unwrap();
        operator
            .execute("select symphony.redrive_payment_outbox($1::text::uuid, 'ana', 'still due')", &[letter])
            .await
            .unwrap();
    }
    let report = harness.reconcile().await;
    assert_eq!((report.counts.executed, report.counts.dispatched), (2 * UNDER_WAY, 2 * UNDER_WAY), "{report}");
    relayer.stop().await;

    let log = "select policy_after::text, actor from symphony.payment_outbox_operations_log where operation = 'DECLARE_SAME_ENDPOINT'";
    let log = operator.query_one(log, &[]).await.unwrap();
    let declared: Value = log.get::<_, &str>(0).parse().unwrap();
    assert_eq!((declared, log.get(1)), (json!({"endpoint": old_endpoint, "same_as": new_endpoint}), "ana"));
}

/// The requests about the first payment of this name.
async fn history(harness: &Harness, name: &str) -> Vec<(String, String)> {
    let requests = harness.bank.requests_for(&instruction(name, 0, RAIL).idempotency_key).await;
    // Inquiries that got no answer, while the bank answered none.
    requests.into_iter().filter(|(_, outcome)| outcome != "NOTHING").collect()
}
