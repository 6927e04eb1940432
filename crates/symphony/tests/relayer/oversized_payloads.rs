//! A bank refuses payments that are too large: they fail, and the circuit breaker of their rail stays closed.

use serde_json::json;
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::harness::{Harness, RAIL};
use crate::producers::instruction;

const LARGE: usize = 12;
const SMALL: usize = 5;
/// The largest request that the bank accepts, in bytes.
const MAX_REQUEST: usize = 2_000;

/// Answers one request: an oversized payment with 413, an inquiry with "unknown key", any other payment with
/// "executed".
async fn answer(mut stream: TcpStream) -> Option<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let length: usize = length.unwrap_or(0);
    stream.read_exact(&mut vec![0; length]).await.ok()?;
    let (status, body) = match length {
        0 => (404, r#"{"status": "UNKNOWN_KEY"}"#),
        1..=MAX_REQUEST => (201, r#"{"status": "EXECUTED"}"#),
        _ => (413, "<h1>too large</h1>"),
    };
    let answer =
        format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.ok()
}

#[tokio::test]
async fn payments_that_are_too_large_do_not_open_the_breaker_of_their_rail() {
    let harness = Harness::start().await;
    harness.set_rail(RAIL, &json!({"max_attempts": 1})).await;
    let bank = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = bank.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = bank.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    let mut settings = harness.settings();
    for section in settings.rails.values_mut() {
        *section = section.replace(&harness.bank.address().to_string(), &address.to_string());
    }
    settings.extra = "[payment.breaker]\nfailures = 2\nopen_for = '60s'\nmax_open_for = '60s'\n".to_owned();
    let mut producer = harness.producer();
    for number in 0..LARGE {
        let mut large = instruction("large", number, RAIL);
        large.payload =
            json!({"amount": "3.00", "currency": "EUR", "destination": {"iban": "DE89370400440532013000"},
            "note": "x".repeat(MAX_REQUEST)})
            .into();
        producer.enqueue(&large).await;
    }
    for number in 0..SMALL {
        producer.enqueue(&instruction("small", number, RAIL)).await;
    }
    let relayer = harness.start_relayer(&settings.payment("slots", "1")).await;
    let paid = "select count(*) from symphony.payment_outbox_attempts where state = 'DISPATCHED'";
    let condition = async || harness.query_number(paid).await == i64::try_from(SMALL).unwrap();
    until("the small payments are paid", DEFAULT_TIMEOUT, condition).await.unwrap();
    assert_eq!(relayer.metric_sum("symphony_breaker_open").await, 0);
    let failed = "select count(*) from symphony.payment_outbox_attempts where state = 'FAILED'";
    assert_eq!(harness.query_number(failed).await, i64::try_from(LARGE).unwrap());
    relayer.stop().await;
}
