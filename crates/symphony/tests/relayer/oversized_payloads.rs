//! Payments that are too large for their bank fail by themselves: the circuit breaker of the rail stays closed.

use serde_json::json;
use symphony_proof::kit::wait::{BOUND, until};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use crate::load::instruction;
use crate::yard::{RAIL, Yard};

const LARGE: usize = 12;
const SMALL: usize = 5;
/// The largest request that the bank reads.
const LIMIT: usize = 2_000;

/// Answers one request: 413 for one that is too large, an inquiry with "never seen", any other payment with "executed".
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
        1..=LIMIT => (201, r#"{"status": "EXECUTED"}"#),
        _ => (413, "<h1>too large</h1>"),
    };
    let answer =
        format!("HTTP/1.1 {status} X\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    stream.write_all(answer.as_bytes()).await.ok()
}

#[tokio::test]
async fn payments_that_are_too_large_do_not_open_the_breaker_of_their_rail() {
    let yard = Yard::open().await;
    yard.rail(RAIL, &json!({"max_attempts": 1})).await;
    let bank = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = bank.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = bank.accept().await {
            tokio::spawn(answer(stream));
        }
    });
    let mut orders = yard.orders();
    for section in orders.rails.values_mut() {
        *section = section.replace(&yard.bank.address().to_string(), &address.to_string());
    }
    orders.more = "[payment.breaker]\nfailures = 2\nfirst_pause = '60s'\nlongest_pause = '60s'\n".to_owned();
    let mut till = yard.till();
    for number in 0..LARGE {
        let mut large = instruction("large", number, RAIL);
        large.payload =
            json!({"amount": "3.00", "currency": "EUR", "destination": {"iban": "DE89370400440532013000"},
            "note": "x".repeat(LIMIT)})
            .into();
        till.enqueue(&large).await;
    }
    for number in 0..SMALL {
        till.enqueue(&instruction("small", number, RAIL)).await;
    }
    let relayer = yard.relayer(&orders.payment("slots", "1")).await;
    let paid = "select count(*) from symphony.payment_outbox_attempts where state = 'DISPATCHED'";
    let so = async || yard.number(paid).await == i64::try_from(SMALL).unwrap();
    until("those behind them are paid", BOUND, so).await.unwrap();
    assert_eq!(relayer.count("symphony_breaker_open").await, 0);
    let failed = "select count(*) from symphony.payment_outbox_attempts where state = 'FAILED'";
    assert_eq!(yard.number(failed).await, i64::try_from(LARGE).unwrap());
    relayer.stop().await;
}
