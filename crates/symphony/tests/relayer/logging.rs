//! What a relayer writes: no secret and no payload, at any level.

use serde_json::json;
use symphony_proof::kit::proxy::{Newcomers, Proxy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::load::instruction;
use crate::yard::{RAIL, Yard};

#[tokio::test]
async fn no_secret_and_no_payload_is_logged_at_any_level() {
    const MARK: &str = "Planted-Mark";
    const SECRET: &str = "whsec_UGxhbnRlZC1NYXJrIGFuZCBzb21lIG1vcmUgYnl0ZXM=";
    let yard = Yard::open().await;
    let password = yard.url.split(':').nth(2).unwrap().split('@').next().unwrap();
    let network = Proxy::before(&yard.url.replace(password, MARK)).unwrap();
    yard.bank.order(&json!({"seed": 3, "cut_after": "0.2", "error_500_before": "0.2", "refuse": "0.2", "half_answer": "0.1"})).await;
    let mut orders = yard
        .orders()
        .of_rails("secret_env = 'SIGNING'\nbearer_env = 'BEARER'\ntimeout = '2s'\nconnect_timeout = '1s'");
    (orders.url, orders.log_level) = (network.url().to_owned(), "trace");
    orders.variables =
        vec![("SIGNING", SECRET.to_owned()), ("BEARER", MARK.to_owned()), ("RUST_LOG", "trace".to_owned())];
    let relayer = yard.relayer(&orders).await;
    let mut till = yard.till();
    for number in 0..30 {
        let mut marked = instruction("marked", number, RAIL);
        // Some of these are no payments at all.
        let amount = if number % 5 == 0 { MARK } else { "3.00" };
        marked.payload =
            json!({"amount": amount, "currency": "EUR", "destination": {"iban": MARK}, "name": MARK}).into();
        till.enqueue(&marked).await;
        if number == 15 {
            network.cut(Newcomers::Refuse).await;
            relayer.says("a call failed").await;
            network.accept().await.unwrap();
        }
    }
    yard.audit().await;
    relayer.metrics().await;
    relayer.stop().await;
    let lines = relayer.lines().await;
    assert!(lines.len() > 5, "{lines:?}");
    for line in &lines {
        for planted in [MARK, &SECRET["whsec_".len()..]] {
            assert!(!line.contains(planted), "{line}");
        }
    }
    // Nor into the ledger, where what went wrong is written.
    let marked = format!(
        "select count(*) from symphony.payment_outbox_attempts where concat(error_message, error_code, rail_code) like '%{MARK}%'"
    );
    assert_eq!(yard.number(&marked).await, 0);
}

#[tokio::test]
async fn nothing_that_a_rail_answers_is_logged_at_any_level() {
    const MARK: &str = "Planted-Mark";
    let yard = Yard::open().await;
    // A bank that says too much, wherever it can: each request has a connection of its own and one answer.
    let bank = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = bank.local_addr().unwrap();
    let talking = tokio::spawn(async move {
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
    let mut orders = yard.orders();
    for section in orders.rails.values_mut() {
        *section = section.replace(&yard.bank.address().to_string(), &address.to_string());
    }
    orders.log_level = "trace";
    orders.variables = vec![("RUST_LOG", "trace".to_owned())];
    yard.rail(RAIL, &json!({"max_attempts": 2})).await;
    let relayer = yard.relayer(&orders).await;
    yard.enqueue("marked", 3).await;
    yard.is_done().await;
    relayer.stop().await;
    talking.abort();
    let lines = relayer.lines().await;
    assert!(lines.iter().any(|line| line.contains("the relayer ends")), "{lines:?}");
    for line in &lines {
        assert!(!line.contains(MARK), "{line}");
    }
    // It did answer: its code is kept where it belongs, and what went wrong is told in our words.
    let codes = format!("select count(*) from symphony.payment_outbox_attempts where rail_code = '{MARK}'");
    assert!(yard.number(&codes).await > 0);
    let marked =
        format!("select count(*) from symphony.payment_outbox_attempts where error_message like '%{MARK}%'");
    assert_eq!(yard.number(&marked).await, 0);
}
