//! Where the line is between a payment that cannot have left and one that may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::sync::mpsc;

use crate::kit::{
    answering, assert_accepted, assert_not_sent, assert_unknown, assert_unsaid, http, listen, payment, rail,
    rail_to, read_request, soon,
};

/// A port at which nobody listens and which nobody else can take meanwhile.
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
    assert_unsaid(&rail.inquire(&payment()).await);
}

#[tokio::test]
async fn a_name_that_nobody_knows_has_sent_nothing() {
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
    assert!(soon(requests.recv()).await.unwrap().1.contains("instruction-1"));
    assert_eq!(connections.load(Ordering::SeqCst), 1, "it was sent again");
    assert_unsaid(&rail.inquire(&payment()).await);
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_unknown_wherever_it_breaks() {
    let whole = http(201, "X-Filler: 1\r\n", r#"{"status": "EXECUTED", "reference": "R1"}"#);
    let (address, _) = answering(whole.clone()).await;
    assert_accepted(&rail_to(address, "").dispatch(&payment()).await);
    for cut in [1, 8, 12, 15, whole.find("\r\n\r\n").unwrap(), whole.find('{').unwrap(), whole.len() - 1] {
        let (address, connections) = answering(&whole[..cut]).await;
        let rail = rail_to(address, "");
        assert_unknown(&rail.dispatch(&payment()).await);
        assert_eq!(connections.load(Ordering::SeqCst), 1, "cut at {cut}: it was sent again");
        assert_unsaid(&rail.inquire(&payment()).await);
    }
}

#[tokio::test]
async fn an_answer_in_chunks_that_has_no_end_is_unknown() {
    let head = "HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n";
    let (address, _) = answering(format!("{head}2\r\n{{}}\r\n0\r\n\r\n")).await;
    assert_accepted(&rail_to(address, "").dispatch(&payment()).await);
    for rest in ["", "2\r\n{}\r\n", "zz\r\n{}\r\n0\r\n\r\n"] {
        let (address, _) = answering(format!("{head}{rest}")).await;
        assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    }
}

#[tokio::test]
async fn what_is_not_http_is_unknown() {
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
        let (address, _) = answering(answer).await;
        assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    }
}

#[tokio::test]
async fn an_answer_that_never_comes_is_unknown() {
    let (address, _) = listen(|mut stream| async move {
        read_request(&mut stream).await;
        // Holds the connection until the client gives up.
        let _ = stream.read_u8().await;
    })
    .await;
    let rail = rail_to(address, "timeout = '2s'\nconnect_timeout = '1900ms'");
    assert_unknown(&rail.dispatch(&payment()).await);
    assert_unsaid(&rail.inquire(&payment()).await);
}

#[tokio::test]
async fn an_answer_that_drips_for_ever_is_unknown() {
    let (address, _) = listen(|mut stream| async move {
        read_request(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 201 X\r\nContent-Length: 5\r\n\r\n{").await;
        let _ = stream.read_u8().await;
    })
    .await;
    assert_unknown(&rail_to(address, "timeout = '2s'\nconnect_timeout = '1900ms'").dispatch(&payment()).await);
}

#[tokio::test]
async fn an_answer_beyond_the_limit_is_unknown_whether_or_not_it_says_its_length() {
    let body = format!("{{\"reference\": \"{}\"}}", "x".repeat(2_000));
    let chunked =
        format!("HTTP/1.1 201 X\r\nTransfer-Encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n", body.len());
    for answer in [http(201, "", &body), chunked, format!("HTTP/1.1 201 X\r\nConnection: close\r\n\r\n{body}")] {
        let (address, _) = answering(answer).await;
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
    let (elsewhere, visited) = answering(http(201, "", "{}")).await;
    for status in [301, 302, 303, 307, 308] {
        let (address, _) = answering(http(status, &format!("Location: http://{elsewhere}/\r\n"), "")).await;
        let rail = rail_to(address, "");
        assert_unknown(&rail.dispatch(&payment()).await);
        assert_unsaid(&rail.inquire(&payment()).await);
    }
    assert_eq!(visited.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn an_answer_is_not_decompressed() {
    let (address, _) = answering(http(201, "Content-Encoding: gzip\r\n", "{}")).await;
    assert_accepted(&rail_to(address, "").dispatch(&payment()).await);
}

#[tokio::test]
async fn a_page_of_a_gateway_is_not_the_banks_word() {
    for status in [200, 201, 400, 422] {
        let (address, _) = answering(http(status, "Content-Type: text/html\r\n", "<h1>Sorry</h1>")).await;
        assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    }
    for (status, body) in [(200, "EXECUTED"), (404, "not found"), (404, "{}"), (200, "[\"EXECUTED\"]")] {
        let (address, _) = answering(http(status, "", body)).await;
        assert_unsaid(&rail_to(address, "").inquire(&payment()).await);
    }
}

#[tokio::test]
async fn a_dispatch_that_is_dropped_is_not_finished_behind_our_back() {
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
        _ = rail.dispatch(&payment) => panic!("nobody answered"),
        event = seen.recv() => assert_eq!(event, Some("request")),
    }
    assert_eq!(soon(seen.recv()).await, Some("closed"));
    assert_eq!(requests.load(Ordering::SeqCst), 1);
}
