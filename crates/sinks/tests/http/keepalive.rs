//! Connections are kept only where the settings say so, and never lead to a second request.

use std::sync::atomic::Ordering;

use symphony_relay::rail::Answer;
use tokio::io::AsyncWriteExt;
use tokio::sync::mpsc;

use crate::kit::{assert_accepted, assert_unknown, http, listen, payment, rail_to, read_request, soon};

async fn patient_server() -> (std::net::SocketAddr, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
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
async fn by_default_every_payment_has_a_connection_of_its_own() {
    let (address, connections) = patient_server().await;
    let rail = rail_to(address, "");
    for _ in 0..3 {
        assert_accepted(&rail.dispatch(&payment()).await);
    }
    assert_eq!(connections.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn connections_are_kept_where_the_settings_say_so() {
    let (address, connections) = patient_server().await;
    let rail = rail_to(address, "idle_timeout = '10m'");
    for _ in 0..20 {
        assert_accepted(&rail.dispatch(&payment()).await);
    }
    // Whether the first is back in the pool when the second starts is up to the scheduler; that all twenty miss is not.
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
        if soon(requests.recv()).await == Some(1) {
            assert_unknown(&answer);
            break;
        }
        assert_accepted(&answer);
    }
    // One request for each dispatch: the one that died was not tried again on another connection.
    assert!(requests.try_recv().is_err());
}

#[tokio::test]
async fn an_answer_that_nobody_asked_for_is_not_taken_for_the_next_ones() {
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
            Answer::Accepted(said) => assert_eq!(said.reference.as_deref(), Some("OWN")),
            // The connection was given up under a request that had begun.
            other => assert_unknown(&other),
        }
    }
}
