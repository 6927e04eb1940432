//! Requests do not reach internal addresses, unless allow_private permits it by name or network.

use std::sync::atomic::Ordering;

use symphony_relay::rail::Answer;

use crate::harness::{assert_accepted, assert_not_sent, http, payment, rail, refusal, respond_with};

#[tokio::test]
async fn a_name_that_resolves_to_an_internal_address_is_refused_before_a_connection_is_made() {
    let (address, connections) = respond_with(http(201, "", "{}")).await;
    let url = format!("kind = 'http'\nallow_http = true\nurl = 'http://localhost:{}/'\n", address.port());
    let answer = rail(&url).dispatch(&payment()).await;
    assert_not_sent(&answer);
    let Answer::Retryable { reason, .. } = answer else { unreachable!() };
    assert!(reason.message.unwrap().contains("allow_private"));
    assert_eq!(connections.load(Ordering::SeqCst), 0);

    // An allowed name may resolve to any address, and any name to an allowed network.
    for allow in ["'LOCALHOST.'", "'127.0.0.0/8', '::1'"] {
        assert_accepted(&rail(&format!("{url}allow_private = [{allow}]")).dispatch(&payment()).await);
    }
    // Another name or another network does not permit it.
    let other = rail(&format!("{url}allow_private = ['bank.internal', '10.0.0.0/8']"));
    assert_not_sent(&other.dispatch(&payment()).await);
}

#[test]
fn an_internal_address_is_refused_in_either_url() {
    let error = refusal("kind = 'http'\nurl = 'https://10.1.2.3/'");
    assert_eq!(
        error,
        "rail sepa: url: its host is a private address: add its name or network to allow_private to permit it"
    );
    let error =
        refusal("kind = 'http'\nurl = 'https://8.8.8.8/'\ninquiry_url = 'https://[::1]/{idempotency_key}'");
    assert!(error.starts_with("rail sepa: inquiry_url: its host is a loopback address"), "{error}");
}
