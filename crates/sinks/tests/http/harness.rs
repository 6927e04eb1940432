//! The harness: servers that send given bytes, a payment, and assertions on the rail's answer.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use symphony_db::payment::Payload;
use symphony_relay::rail::{Answer, Inquiry, Payment, Rail};
use symphony_sinks::http::NOT_SENT;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) fn payment() -> Payment {
    let payload = r#"{"amount": "10.00", "currency": "EUR", "destination": {"iban": "DE89370400440532013000"}}"#;
    Payment {
        outbox_id: uuid::Uuid::nil().into(),
        instruction_id: "instruction-1".to_owned(),
        participant_id: "participant-1".to_owned(),
        sequence_id: 7,
        idempotency_key: "key-1".to_owned(),
        rail_type: "sepa".to_owned(),
        payload: serde_json::from_str::<Payload>(payload).unwrap(),
        attempt_count: 0,
    }
}

/// A rail from its settings.
pub(crate) fn rail(toml: &str) -> Arc<dyn Rail> {
    symphony_sinks::rail("sepa", toml.parse().unwrap()).unwrap()
}

/// A rail to a test server without TLS.
pub(crate) fn rail_to(address: SocketAddr, more: &str) -> Arc<dyn Rail> {
    rail(&format!(
        "kind = 'http'\nurl = 'http://{address}/v1/payments'\n\
         inquiry_url = 'http://{address}/v1/payments/{{idempotency_key}}'\n\
         allow_http = true\nallow_private = ['127.0.0.1']\n{more}"
    ))
}

pub(crate) fn refusal(toml: &str) -> String {
    match symphony_sinks::rail("sepa", toml.parse().unwrap()) {
        Ok(_) => panic!("accepted: {toml}"),
        Err(error) => error.to_string(),
    }
}

/// A server that passes each connection to `serve`, and the number of accepted connections.
pub(crate) async fn listen<F, Fut>(serve: F) -> (SocketAddr, Arc<AtomicUsize>)
where
    F: Fn(TcpStream) -> Fut + Send + 'static,
    Fut: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let accepted = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&accepted);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            counter.fetch_add(1, Ordering::SeqCst);
            tokio::spawn(serve(stream));
        }
    });
    (address, accepted)
}

/// A server that reads one request on each connection, sends these bytes and closes.
pub(crate) async fn respond_with(answer: impl Into<Vec<u8>>) -> (SocketAddr, Arc<AtomicUsize>) {
    let answer = answer.into();
    listen(move |mut stream| {
        let answer = answer.clone();
        async move {
            if read_request(&mut stream).await.is_some() {
                let _ = stream.write_all(&answer).await;
                let _ = stream.shutdown().await;
            }
        }
    })
    .await
}

/// An HTTP response with `Content-Length`.
pub(crate) fn http(status: u16, headers: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// One request, head and body. None if the connection ended first.
pub(crate) async fn read_request(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<(String, String)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| line.to_lowercase().strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, String::from_utf8(body).unwrap()))
}

/// Waits for something that must happen within a minute.
pub(crate) async fn in_time<T>(what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(60), what).await.expect("did not happen within a minute")
}

#[track_caller]
pub(crate) fn assert_not_sent(answer: &Answer) {
    match answer {
        Answer::Retryable { reason, retry_after: None, .. } if reason.code == NOT_SENT => {}
        other => panic!("not \"never sent\": {other:?}"),
    }
}

#[track_caller]
pub(crate) fn assert_unknown(answer: &Answer) {
    assert!(matches!(answer, Answer::Unknown { .. }), "not unknown: {answer:?}");
}

#[track_caller]
pub(crate) fn assert_accepted(answer: &Answer) {
    assert!(matches!(answer, Answer::Executed(_)), "not accepted: {answer:?}");
}

#[track_caller]
pub(crate) fn assert_inconclusive(inquiry: &Inquiry) {
    assert!(matches!(inquiry, Inquiry::NoAnswer { .. }), "not inconclusive: {inquiry:?}");
}
