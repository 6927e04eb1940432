//! The boundary between a payment that was not sent and one that may have been sent.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;

use crate::harness::{
    assert_accepted, assert_inconclusive, assert_not_sent, assert_unknown, http, in_time, listen, payment, rail,
    rail_to, read_request, respond_with,
};

/// A bound port without a listener: connections are refused, and no other process can take it.
fn closed_port() -> (TcpSocket, std::net::SocketAddr) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[tokio::test]
async fn a_refused_connection_has_sent_nothing() {
    let (_held, address) = closed_port();
    let rail = rail_to(address, "");
    assert_not_sent(&rail.dispatch(&payment()).await);
    assert_inconclusive(&rail.inquire(&payment()).await);
}

#[tokio::test]
async fn an_unknown_host_name_has_sent_nothing() {
    let rail = rail("kind = 'http'\nurl = 'http://no-such-bank.invalid/'\nallow_http = true");
    assert_not_sent(&rail.dispatch(&payment()).await);
}

#[tokio::test]
async fn a_connection_cut_before_anything_was_read_may_have_sent() {
    // A close with unread bytes is a reset, one without is an end: both must be unknown.
    let (address, _) = listen(|stream| async move { drop(stream) }).await;
    assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    let (address, _) = listen(|mut stream| async move {
        let _ = stream.read_u8().await;
    })
    .await;
    assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
}

#[tokio::test]
async fn a_connection_cut_after_the_request_was_read_may_have_sent() {
    let (seen, mut requests) = mpsc::unbounded_channel();
    let (address, connections) = listen(move |mut stream| {
        let seen = seen.clone();
        async move {
            seen.send(read_request(&mut stream).await.unwrap()).unwrap();
        }
    })
    .await;
    let rail = rail_to(address, "");
    assert_unknown(&rail.dispatch(&payment()).await);
    assert!(in_time(requests.recv()).await.unwrap().1.contains("instruction-1"));
    assert_eq!(connections.load(Ordering::SeqCst), 1, "it was sent again");
    assert_inconclusive(&rail.inquire(&payment()).await);
}

#[tokio::test]
async fn a_truncated_response_is_unknown_wherever_it_ends() {
    let whole = http(201, "X-Filler: 1\r\n", r#"{"status": "EXECUTED", "reference": "R1"}"#);
    let (address, _) = respond_with(whole.clone()).await;
    assert_accepted(&rail_to(address, "").dispatch(&payment()).await);
    for cut in [1, 8, 12, 15, whole.find("\r\n\r\n").unwrap(), whole.find('{').unwrap(), whole.len() - 1] {
        let (address, connections) = respond_with(&whole[..cut]).await;
        let rail = rail_to(address, "");
        assert_unknown(&rail.dispatch(&payment()).await);
        assert_eq!(connections.load(Ordering::SeqCst), 1, "cut at {cut}: it was sent again");
        assert_inconclusive(&rail.inquire(&payment()).await);
    }
}

#[tokio::test]
async fn an_incomplete_chunked_response_is_unknown() {
    let head = "HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (address, _) = respond_with(format!("{head}2\r\n{{}}\r\n0\r\n\r\n")).await;
    assert_accepted(&rail_to(address, "").dispatch(&payment()).await);
    for rest in ["", "2\r\n{}\r\n", "zz\r\n{}\r\n0\r\n\r\n"] {
        let (address, _) = respond_with(format!("{head}{rest}")).await;
        assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    }
}

#[tokio::test]
async fn a_response_that_is_not_http_is_unknown() {
    let endless = format!("HTTP/1.1 201 X\r\n{}\r\n{{}}", "X-Filler: 1\r\n".repeat(5_000));
    for answer in [
        &endless,
        "",
        "\0\u{1}\u{2}",
        "hello\r\n\r\n",
        "SSH-2.0-OpenSSH_9.2\r\n",
        "HTTP/1.1 abc X\r\n\r\n",
        "HTTP/1.1 99 X\r\n\r\n",
    ] {
        let (address, _) = respond_with(answer).await;
        assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    }
}

#[tokio::test]
async fn a_response_that_never_comes_is_unknown() {
    let (address, _) = listen(|mut stream| async move {
        read_request(&mut stream).await;
        // Keeps the connection open until the client times out.
        let _ = stream.read_u8().await;
    })
    .await;
    let rail = rail_to(address, "timeout = '2s'\nconnect_timeout = '1900ms'");
    assert_unknown(&rail.dispatch(&payment()).await);
    assert_inconclusive(&rail.inquire(&payment()).await);
}

#[tokio::test]
async fn a_response_that_never_ends_is_unknown() {
    let (address, _) = listen(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 201 X\r\nContent-Length: 5\r\n\r\n{").await;
        let _ = stream.read_u8().await;
    })
    .await;
    assert_unknown(&rail_to(address, "timeout = '2s'\nconnect_timeout = '1900ms'").dispatch(&payment()).await);
}

#[tokio::test]
async fn a_response_above_the_limit_is_unknown_with_and_without_a_content_length() {
    let body = format!("{{\"reference\": \"{}\"}}", "x".repeat(2_000));
    let chunked =
        format!("HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for answer in [http(201, "", &body), chunked, format!("HTTP/1.1 201 X\r\nConnection: close\r\n\r\n{body}")] {
        let (address, _) = respond_with(answer).await;
        assert_accepted(&rail_to(address, "").dispatch(&payment()).await);
        assert_accepted(
            &rail_to(address, &format!("answer_limit_bytes = {}", body.len())).dispatch(&payment()).await,
        );
        assert_unknown(
            &rail_to(address, &format!("answer_limit_bytes = {}", body.len() - 1)).dispatch(&payment()).await,
        );
    }
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let (elsewhere, visited) = respond_with(http(201, "", "{}")).await;
    for status in [301, 302, 303, 307, 308] {
        let (address, _) = respond_with(http(status, &format!("Location: http://{elsewhere}/\r\n"), "")).await;
        let rail = rail_to(address, "");
        assert_unknown(&rail.dispatch(&payment()).await);
        assert_inconclusive(&rail.inquire(&payment()).await);
    }
    assert_eq!(visited.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_response_is_not_decompressed() {
    let (address, _) = respond_with(http(201, "Content-Encoding: gzip\r\n", "{}")).await;
    assert_accepted(&rail_to(address, "").dispatch(&payment()).await);
}

#[tokio::test]
async fn an_html_page_of_a_gateway_ends_no_payment() {
    for status in [200, 201, 400, 422] {
        let (address, _) = respond_with(http(status, "Content-Type: text/html\r\n", "<h1>Sorry</h1>")).await;
        assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    }
    for (status, body) in [(200, "EXECUTED"), (404, "not found"), (404, "{}"), (200, "[\"EXECUTED\"]")] {
        let (address, _) = respond_with(http(status, "", body)).await;
        assert_inconclusive(&rail_to(address, "").inquire(&payment()).await);
    }
}

#[tokio::test]
async fn a_cancelled_dispatch_closes_its_connection() {
    let requests = Arc::new(AtomicUsize::new(0));
    let (started, mut seen) = mpsc::unbounded_channel();
    let counter = Arc::clone(&requests);
    let (address, _) = listen(move |mut stream| {
        let (counter, started) = (Arc::clone(&counter), started.clone());
        async move {
            while read_request(&mut stream).await.is_some() {
                counter.fetch_add(1, Ordering::SeqCst);
                started.send("request").unwrap();
            }
            started.send("closed").unwrap();
        }
    })
    .await;
    let rail = rail_to(address, "");
    let payment = payment();
    tokio::select! {
        _ = rail.dispatch(&payment) => panic!("the server never responds"),
        event = seen.recv() => assert_eq!(event, Some("request")),
    }
    assert_eq!(in_time(seen.recv()).await, Some("closed"));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}
