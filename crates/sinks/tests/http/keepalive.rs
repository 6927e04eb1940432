//! Connections are reused only with idle_timeout, and a failed reuse never sends a request again.

use std::sync::atomic::Ordering;

use symphony_relay::rail::Answer;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::harness::{assert_accepted, assert_unknown, http, in_time, listen, payment, rail_to, read_request};

async fn keepalive_server() -> (std::net::SocketAddr, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    listen(|mut stream| async move {
        while read_request(&mut stream).await.is_some() {
            if stream.write_all(http(201, "", "{}").as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await
}

#[tokio::test]
async fn by_default_every_payment_has_its_own_connection() {
    let (address, connections) = keepalive_server().await;
    let rail = rail_to(address, "");
    for _ in 0..3 {
        assert_accepted(&rail.dispatch(&payment()).await);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn connections_are_reused_with_idle_timeout() {
    let (address, connections) = keepalive_server().await;
    let rail = rail_to(address, "idle_timeout = '10m'");
    for _ in 0..20 {
        assert_accepted(&rail.dispatch(&payment()).await);
    }
    // The scheduler decides whether a connection is back in the pool in time. All twenty cannot miss it.
    assert!(connections.load(Ordering::SeqCst) < 20);
}

#[tokio::test]
async fn a_request_on_a_kept_connection_that_dies_is_unknown_and_not_sent_again() {
    let (seen, mut requests) = mpsc::unbounded_channel();
    let (address, _) = listen(move |mut stream| {
        let seen = seen.clone();
        async move {
            // Answers the first request of each connection and dies on the second, once it has read it.
            for turn in 0..2 {
                let Some(_) = read_request(&mut stream).await else { return };
                seen.send(turn).unwrap();
                if turn == 0 {
                    stream.write_all(http(201, "", "{}").as_bytes()).await.unwrap();
                }
            }
        }
    })
    .await;
    let rail = rail_to(address, "idle_timeout = '10m'");
    let mut dispatched = 0;
    loop {
        let answer = rail.dispatch(&payment()).await;
        dispatched += 1;
        assert!(dispatched < 100, "no connection was ever used again");
        if in_time(requests.recv()).await == Some(1) {
            assert_unknown(&answer);
            break;
        }
        assert_accepted(&answer);
    }
    // One request for each dispatch: none was sent again on another connection.
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn an_unsolicited_response_is_not_used_for_the_next_request() {
    let (address, _) = listen(|mut stream| async move {
        let (own, stale) = (http(201, "", r#"{"reference": "OWN"}"#), http(201, "", r#"{"reference": "STALE"}"#));
        while read_request(&mut stream).await.is_some() {
            if stream.write_all(format!("{own}{stale}").as_bytes()).await.is_err() {
                return;
            }
        }
    })
    .await;
    let rail = rail_to(address, "idle_timeout = '10m'");
    for _ in 0..50 {
        match rail.dispatch(&payment()).await {
            Answer::Executed(recorded) => assert_eq!(recorded.reference.as_deref(), Some("OWN")),
            // The client dropped the connection after the request had begun.
            other => assert_unknown(&other),
        }
    }
}
