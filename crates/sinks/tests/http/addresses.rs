//! Requests do not go into the house, unless the settings say by name or network that they may.

use std::sync::atomic::Ordering;

use symphony_relay::rail::Answer;

use crate::kit::{answering, assert_accepted, assert_not_sent, http, payment, rail, refusal};

#[tokio::test]
async fn a_name_that_leads_into_the_house_is_refused_before_a_connection_is_made() {
    let (address, connections) = answering(http(201, "", "{}")).await;
    let url = format!("kind = 'http'\nallow_http = true\nurl = 'http://localhost:{}/'\n", address.port());
    let answer = rail(&url).dispatch(&payment()).await;
    assert_not_sent(&answer);
    let Answer::Later { reason, .. } = answer else { unreachable!() };
    assert!(reason.message.unwrap().contains("allow_private"));
    assert_eq!(connections.load(Ordering::SeqCst), 0);

    // A name that is allowed leads anywhere, and so does any name to a network that is.
    for allow in ["'LOCALHOST.'", "'127.0.0.0/8', '::1'"] {
        assert_accepted(&rail(&format!("{url}allow_private = [{allow}]")).dispatch(&payment()).await);
    }
    // Another name, or another network, allows nothing.
    let other = rail(&format!("{url}allow_private = ['bank.internal', '10.0.0.0/8']"));
    assert_not_sent(&other.dispatch(&payment()).await);
}

#[test]
fn an_address_in_the_house_is_refused_in_either_url() {
    let said = refusal("kind = 'http'\nurl = 'https://10.1.2.3/'");
    assert_eq!(
        said,
        "rail sepa: url: its host is a private address; allow_private lets requests go there, by name or network"
    );
    let said = refusal("kind = 'http'\nurl = 'https://8.8.8.8/'\ninquiry_url = 'https://[::1]/{idempotency_key}'");
    assert!(said.starts_with("rail sepa: inquiry_url: its host is a loopback address"), "{said}");
}
