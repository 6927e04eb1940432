//! Accepted is not paid: the bank answers 202, and what became of the payment comes later, by an inquiry or a callback, or never.

use std::net::TcpListener;
use std::os::unix::process::ExitStatusExt as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use symphony_testkit::process::Launch;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::bank::Bank;
use crate::harness::{Harness, RAIL};
use crate::http;
use crate::producers::instruction;
use crate::relayer::{Relayer, Settings, USAGE_ERROR};

/// With it, bank and relayer sign and verify callbacks.
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const SECRET_VARIABLE: &str = "TEST_CALLBACK_SECRET";
/// SIGABRT.
const ABORTED: i32 = 6;

fn key(name: &str) -> String {
    instruction(name, 0, RAIL).idempotency_key
}

/// A harness whose bank accepts every payment, decides only on request, and reports to this port of the relayer.
async fn accepting(policy: Value) -> (Harness, u16) {
    let mut harness = Harness::start().await;
    harness.set_rail(RAIL, &policy).await;
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("http://127.0.0.1:{port}/callbacks/{RAIL}");
    let arguments = ["--callback-url", &url, "--callback-secret-env", SECRET_VARIABLE, "--fault", "accept=1"];
    let arguments = [&arguments[..], &["--fault", "settle_after=off"]].concat();
    harness.bank = Bank::start_with(&arguments, &[(SECRET_VARIABLE, SECRET)]).await;
    (harness, port)
}

/// Settings of a relayer that takes callbacks at this port.
fn with_callbacks(settings: Settings, port: u16) -> Settings {
    let mut settings = settings.payment_defaults();
    settings.extra = format!("[callbacks]\nlisten = '127.0.0.1:{port}'");
    settings.variables.push((SECRET_VARIABLE, SECRET.to_owned()));
    settings.rail_lines(&format!("[rails.{RAIL}.callback]\nsecret_env = '{SECRET_VARIABLE}'"))
}

/// State and error code of each attempt, in order, and whether it ended a lease.
async fn attempts(harness: &Harness, name: &str) -> Vec<(String, Option<String>, bool)> {
    let attempts = "select state::text, error_code, claimed_at is not null from symphony.payment_outbox_attempts
                    where idempotency_key = $1 order by attempt_no";
    let rows = harness.superuser().await.query(attempts, &[&key(name)]).await.unwrap();
    rows.iter().map(|row| (row.get(0), row.get(1), row.get(2))).collect()
}

async fn wait_until_accepted(harness: &Harness, count: i64) {
    let awaiting = "select count(*) from symphony.payment_awaiting_confirmation";
    let condition = async || harness.query_number(awaiting).await == count;
    until(format!("{count} payments await confirmation"), DEFAULT_TIMEOUT, condition).await.unwrap();
}

async fn payments(harness: &Harness, name: &str) -> usize {
    harness.bank.requests_for(&key(name)).await.iter().filter(|(kind, _)| kind == "payment").count()
}

fn accepted() -> (String, Option<String>, bool) {
    ("RETRYABLE".to_owned(), Some("AWAITING_CONFIRMATION".to_owned()), true)
}

/// Posts a callback with the headers of the Standard Webhooks scheme.
async fn post(
    relayer: &Relayer,
    rail: &str,
    id: &str,
    signed_at: i64,
    body: &str,
    signature: &str,
) -> (u16, String) {
    let headers =
        format!("webhook-id: {id}\r\nwebhook-timestamp: {signed_at}\r\nwebhook-signature: {signature}\r\n");
    http::request_with(relayer.callbacks(), "POST", &format!("/callbacks/{rail}"), &headers, body).await.unwrap()
}

/// The signature of a message, by HMAC-SHA256 of its definition: not by the code that is tested.
fn sign(secret: &str, id: &str, signed_at: i64, body: &str) -> String {
    let mut block = [0_u8; 64];
    let key = STANDARD.decode(secret.strip_prefix("whsec_").unwrap()).unwrap();
    block[..key.len()].copy_from_slice(&key);
    let pad = |with: u8| block.map(|byte| byte ^ with);
    let inner = Sha256::new().chain_update(pad(0x36)).chain_update(format!("{id}.{signed_at}.{body}")).finalize();
    format!("v1,{}", STANDARD.encode(Sha256::new().chain_update(pad(0x5c)).chain_update(inner).finalize()))
}

async fn inspect(harness: &Harness, name: &str) -> String {
    let url = harness.database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let instruction = instruction(name, 0, RAIL).instruction_id;
    let launch =
        Launch::new(env!("CARGO_BIN_EXE_symphony")).args(["inspect", &instruction]).env("DATABASE_URL", url);
    let inspected = launch.start().unwrap();
    assert_eq!(inspected.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", inspected.tail());
    inspected.tail()
}

#[tokio::test]
async fn an_accepted_payment_is_inquired_about_until_the_bank_has_executed_it() {
    let (harness, _) = accepting(json!({"confirm_every_seconds": 1, "on_unknown": "RESEND"})).await;
    let relayer = harness.start_relayer(&harness.settings().payment_defaults()).await;
    harness.enqueue("slow", 1).await;
    wait_until_accepted(&harness, 1).await;
    let inquired = async || harness.bank.requests_for(&key("slow")).await.len() >= 3;
    until("it was inquired about twice", DEFAULT_TIMEOUT, inquired).await.unwrap();

    let status = "select status from symphony.outbox_operational_status";
    let waiting = async || {
        harness.superuser().await.query_one(status, &[]).await.unwrap().get::<_, String>(0)
            == "AWAITING_CONFIRMATION"
    };
    until("it waits for the next inquiry", DEFAULT_TIMEOUT, waiting).await.unwrap();
    let text = inspect(&harness, "slow").await;
    assert!(text.contains("ACCEPTED by the rail") && text.contains("it is not paid yet"), "{text}");
    let gauge = format!("symphony_payments_awaiting_confirmation{{lane=\"payment\",rail=\"{RAIL}\"}} 1");
    let metrics = relayer.metrics().await;
    assert!(
        metrics.contains(&gauge) && metrics.contains("symphony_oldest_awaiting_confirmation_age_seconds{"),
        "{metrics}"
    );

    harness.bank.settle(&key("slow"), "EXECUTED").await;
    harness.reconcile().await;
    assert_eq!(payments(&harness, "slow").await, 1);
    let attempts = attempts(&harness, "slow").await;
    assert_eq!(attempts.last().unwrap(), &("DISPATCHED".to_owned(), None, true));
    assert!(attempts[..attempts.len() - 1].iter().all(|attempt| *attempt == accepted()), "{attempts:?}");

    // Refused later: a known failure.
    harness.enqueue("refused", 1).await;
    wait_until_accepted(&harness, 1).await;
    harness.bank.settle(&key("refused"), "REFUSED").await;
    let report = harness.reconcile().await;
    assert_eq!((report.counts.executed, report.counts.unknown), (1, 0));
    assert_eq!(self::attempts(&harness, "refused").await.last().unwrap().1.as_deref(), Some("RAIL_REFUSED"));
    relayer.stop().await;
}

#[tokio::test]
async fn a_callback_settles_an_accepted_payment_without_an_inquiry() {
    let (harness, port) = accepting(json!({"confirm_every_seconds": 86_400})).await;
    let settings = with_callbacks(harness.settings().without_inquiry(), port);
    let relayer = harness.start_relayer(&settings).await;
    for (name, status) in [("executed", "EXECUTED"), ("refused", "REFUSED")] {
        harness.enqueue(name, 1).await;
        wait_until_accepted(&harness, 1).await;
        harness.bank.settle(&key(name), status).await;
        harness.wait_until_drained().await;
    }
    harness.reconcile().await;
    let known = [("payment", "ACCEPTED"), ("settlement", "EXECUTED")]
        .map(|(kind, what)| (kind.to_owned(), what.to_owned()));
    assert_eq!(harness.bank.requests_for(&key("executed")).await, known);
    assert_eq!(attempts(&harness, "executed").await, [accepted(), ("DISPATCHED".to_owned(), None, false)]);
    let refused = ("FAILED".to_owned(), Some("RAIL_REFUSED".to_owned()), false);
    assert_eq!(attempts(&harness, "refused").await, [accepted(), refused]);
    let line = relayer.wait_for_log("PAYMENT_FAILED").await;
    assert!(line.contains("RAIL_REFUSED") && !line.contains(&key("refused")), "{line}");
    assert!(inspect(&harness, "executed").await.contains("DISPATCHED: confirmed by the rail"));
    assert_eq!(relayer.metric_sum("symphony_callbacks_total").await, 2);
    relayer.stop().await;
}

#[tokio::test]
async fn a_forged_a_late_a_replayed_and_a_contradicting_callback_change_nothing() {
    let (harness, port) = accepting(json!({"confirm_every_seconds": 86_400})).await;
    let relayer = harness.start_relayer(&with_callbacks(harness.settings(), port)).await;
    harness.enqueue("target", 1).await;
    wait_until_accepted(&harness, 1).await;
    let now = Timestamp::now().as_second();
    let says = |status: &str| json!({ "idempotency_key": key("target"), "status": status }).to_string();
    let body = says("EXECUTED");
    let other = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";
    for (what, rail, id, signed_at, body, signature, expected) in [
        ("by another secret", RAIL, "m", now, &body, sign(other, "m", now, &body), 401),
        ("unsigned", RAIL, "m", now, &body, String::new(), 401),
        ("for another message id", RAIL, "n", now, &body, sign(SECRET, "m", now, &body), 401),
        ("for another body", RAIL, "m", now, &says("REFUSED"), sign(SECRET, "m", now, &body), 401),
        ("too old", RAIL, "m", now - 400, &body, sign(SECRET, "m", now - 400, &body), 401),
        ("of the future", RAIL, "m", now + 400, &body, sign(SECRET, "m", now + 400, &body), 401),
        ("of an unknown status", RAIL, "m", now, &says("BOOKED"), sign(SECRET, "m", now, &says("BOOKED")), 400),
        ("of no decision", RAIL, "m", now, &says("PENDING"), sign(SECRET, "m", now, &says("PENDING")), 200),
        ("for another rail", "wire", "m", now, &body, sign(SECRET, "m", now, &body), 404),
    ] {
        let answer = post(&relayer, rail, id, signed_at, body, &signature).await;
        assert_eq!(answer.0, expected, "{what}: {}", answer.1);
        assert_eq!(harness.pending_count().await, 1, "{what}");
    }
    let huge = "x".repeat(70_000);
    assert_eq!(post(&relayer, RAIL, "m", now, &huge, &sign(SECRET, "m", now, &huge)).await.0, 413);
    let unknown = json!({ "idempotency_key": "no such key", "status": "EXECUTED" }).to_string();
    let answer = post(&relayer, RAIL, "u", now, &unknown, &sign(SECRET, "u", now, &unknown)).await;
    assert!(answer.0 == 409 && answer.1.contains("UNKNOWN_KEY"), "{answer:?}");

    for (id, status, expected) in [
        ("m1", "EXECUTED", (200, "SETTLED")),
        ("m1", "EXECUTED", (200, "REPLAYED")),
        ("m2", "EXECUTED", (200, "REPLAYED")),
        ("m3", "REFUSED", (409, "CONTRADICTS_OUTCOME")),
    ] {
        let body = says(status);
        let answer = post(&relayer, RAIL, id, now, &body, &sign(SECRET, id, now, &body)).await;
        assert!(answer.0 == expected.0 && answer.1.contains(expected.1), "{id} {status}: {answer:?}");
    }
    assert_eq!(attempts(&harness, "target").await, [accepted(), ("DISPATCHED".to_owned(), None, false)]);
    let line = relayer.wait_for_log("CONFIRMATION_REFUSED").await;
    assert!(!line.contains("no such key"), "{line}");
    // The listener serves nothing else.
    for path in ["/", "/metrics", "/api/v1/overview", "/callbacks"] {
        assert_eq!(http::request(relayer.callbacks(), "GET", path, "").await.unwrap().0, 404, "{path}");
    }
    relayer.stop().await;
}

#[tokio::test]
async fn what_is_never_confirmed_moves_to_the_dead_letter_queue_with_an_unknown_outcome() {
    let (harness, _) = accepting(json!({"confirm_every_seconds": 1, "max_attempts": 3})).await;
    let relayer = harness.start_relayer(&harness.settings().payment_defaults()).await;
    harness.enqueue("silent", 1).await;
    let report = harness.reconcile().await;
    assert_eq!((report.counts.unknown, report.counts.executed), (1, 0));
    let unknown = ("FAILED".to_owned(), Some("OUTCOME_UNKNOWN".to_owned()), true);
    assert_eq!(attempts(&harness, "silent").await, [accepted(), accepted(), unknown]);
    assert_eq!(payments(&harness, "silent").await, 1);
    relayer.stop().await;
}

#[tokio::test]
async fn a_payment_that_was_accepted_before_its_relayer_died_is_not_sent_again() {
    let (harness, port) = accepting(json!({"confirm_every_seconds": 1})).await;
    // Between the bank's answer and its record.
    let victim = harness.start_relayer(&harness.settings().abort_at("before_complete")).await;
    harness.enqueue("orphan", 1).await;
    let status = victim.program.exit(DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(status.signal(), Some(ABORTED), "{}", victim.program.tail());
    // Decided while no relayer runs: the bank delivers its callback until it is taken, and the lease has not expired.
    harness.bank.settle(&key("orphan"), "EXECUTED").await;
    let relayer = harness.start_relayer(&with_callbacks(harness.settings(), port)).await;
    harness.reconcile().await;
    assert_eq!(payments(&harness, "orphan").await, 1);
    assert_eq!(attempts(&harness, "orphan").await.last().unwrap().0, "DISPATCHED");

    // After the record of the acceptance, in the middle of an inquiry.
    harness.enqueue("inquired", 1).await;
    wait_until_accepted(&harness, 1).await;
    relayer.program.kill9().await.unwrap();
    harness.expire_leases().await;
    harness.bank.settle(&key("inquired"), "EXECUTED").await;
    let next = harness.start_relayer(&harness.settings().payment_defaults()).await;
    harness.reconcile().await;
    assert_eq!(payments(&harness, "inquired").await, 1);
    next.stop().await;
}

#[tokio::test]
async fn a_rail_whose_acceptances_nothing_would_confirm_is_refused_at_the_start() {
    let harness = Harness::start().await;
    let folder = harness.folder.path();
    let accepts = "[rails.sepa.outcomes]\n'202' = 'accepted'";
    let blind = harness.settings().without_inquiry().rail_lines(accepts);
    let texts = ["is \"accepted\", but nothing would ever say", "inquiry_url", "callback"];
    blind.refuses_to_start(folder, USAGE_ERROR, &texts).await;

    let mut deaf = with_callbacks(harness.settings(), 0);
    deaf.extra.clear();
    deaf.refuses_to_start(
        folder,
        USAGE_ERROR,
        &["rail sepa has a section callback, but callbacks.listen is empty"],
    )
    .await;
    let mut idle = harness.settings();
    idle.extra = "[callbacks]\nlisten = '127.0.0.1:0'".to_owned();
    idle.refuses_to_start(folder, USAGE_ERROR, &["callbacks.listen is set, but no rail has a section callback"])
        .await;
    let open = harness.settings().rail_lines("[rails.sepa.callback]\ntolerance = '1m'");
    open.refuses_to_start(folder, USAGE_ERROR, &["rail sepa: callback: needs secret_env or secret_file"]).await;
}
