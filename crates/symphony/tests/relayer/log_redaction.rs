//! The log of a relayer has no secret, no payload and no text of a bank, at any level.

use serde_json::json;
use symphony_testkit::proxy::{NewConnections, Proxy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;

#[tokio::test]
async fn no_secret_and_no_payload_is_logged_at_any_level() {
    const MARK: &str = "Planted-Mark";
    const SECRET: &str = "whsec_UGxhbnRlZC1NYXJrIGFuZCBzb21lIG1vcmUgYnl0ZXM=";
    let harness = Harness::start().await;
    let password = harness.url.split(':').nth(2).unwrap().split('@').next().unwrap();
    let network = Proxy::in_front_of(&harness.url.replace(password, MARK)).unwrap();
    harness.bank.set_faults(&json!({"seed": 3, "cut_after": "0.2", "error_500_before": "0.2", "refuse": "0.2", "half_answer": "0.1"})).await;
    let mut settings = harness
        .settings()
        .rail_lines("secret_env = 'SIGNING'\nbearer_env = 'BEARER'\ntimeout = '2s'\nconnect_timeout = '1s'");
    (settings.url, settings.log_level) = (network.url().to_owned(), "trace");
    settings.variables =
        vec![("SIGNING", SECRET.to_owned()), ("BEARER", MARK.to_owned()), ("RUST_LOG", "trace".to_owned())];
    let relayer = harness.start_relayer(&settings).await;
    let mut producer = harness.producer();
    for number in 0..30 {
        let mut marked = instruction("marked", number, RAIL);
        // Some payloads are not valid payments.
        let amount = if number % 5 == 0 { MARK } else { "3.00" };
        marked.payload =
            json!({"amount": amount, "currency": "EUR", "destination": {"iban": MARK}, "name": MARK}).into();
        producer.enqueue(&marked).await;
        if number == 15 {
            network.cut(NewConnections::Refuse).await;
            relayer.wait_for_log("a call failed").await;
            network.accept().await.unwrap();
        }
    }
    harness.reconcile().await;
    relayer.metrics().await;
    relayer.stop().await;
    let lines = relayer.log_lines().await;
    assert!(lines.len() > 5, "{lines:?}");
    for line in &lines {
        for planted in [MARK, &SECRET["whsec_".len()..]] {
            assert!(!line.contains(planted), "{line}");
        }
    }
    // The ledger's error columns have none either.
    let marked = format!(
        "select count(*) from symphony.payment_outbox_attempts where concat(error_message, error_code, rail_code) like '%{MARK}%'"
    );
    assert_eq!(harness.query_number(&marked).await, 0);
}

#[tokio::test]
async fn nothing_that_a_rail_answers_is_logged_at_any_level() {
    const MARK: &str = "Planted-Mark";
    let harness = Harness::start().await;
    // A bank that puts the mark into every part of its response. Each request has its own connection.
    let bank = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = bank.local_addr().unwrap();
    let responses = tokio::spawn(async move {
        for number in 0.. {
            let Ok((mut stream, _)) = bank.accept().await else { return };
            let status = [503, 422, 500][number % 3];
            let body = json!({"code": MARK, "status": MARK, "message": MARK, "password": MARK}).to_string();
            let answer = format!(
                "HTTP/1.1 {status} {MARK}\r\nX-Mark: {MARK}\r\nSet-Cookie: sid={MARK}\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            );
            let _ = stream.read(&mut [0; 16_384]).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let mut settings = harness.settings();
    for section in settings.rails.values_mut() {
        *section = section.replace(&harness.bank.address().to_string(), &address.to_string());
    }
    settings.log_level = "trace";
    settings.variables = vec![("RUST_LOG", "trace".to_owned())];
    harness.set_rail(RAIL, &json!({"max_attempts": 2})).await;
    let relayer = harness.start_relayer(&settings).await;
    harness.enqueue("marked", 3).await;
    harness.wait_until_drained().await;
    relayer.stop().await;
    responses.abort();
    let lines = relayer.log_lines().await;
    assert!(lines.iter().any(|line| line.contains("the relayer ends")), "{lines:?}");
    for line in &lines {
        assert!(!line.contains(MARK), "{line}");
    }
    // The bank did answer: the ledger has its code in rail_code, and an error message without its text.
    let codes = format!("select count(*) from symphony.payment_outbox_attempts where rail_code = '{MARK}'");
    assert!(harness.query_number(&codes).await > 0);
    let marked =
        format!("select count(*) from symphony.payment_outbox_attempts where error_message like '%{MARK}%'");
    assert_eq!(harness.query_number(&marked).await, 0);
}
