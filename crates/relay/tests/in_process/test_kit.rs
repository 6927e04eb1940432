//! The test kit as a user's test has it: a database of its own, a rail that fails on demand, and time travel.

use symphony_relay::Relayer;
use symphony_testkit::scripted_rail::{ScriptedRail, Step};
use symphony_testkit::time_travel::{expire_payment_leases, make_payments_due};
use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::{database, ends_as, enqueue};

#[tokio::test]
async fn a_lost_request_and_a_lost_answer_are_inquired_about_and_paid_once() {
    let (database, owner) = database("book").await;
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let rail = ScriptedRail::new();
    let relayer = Relayer::builder(&url).rail("book", rail.clone()).start().await.unwrap();
    let unknown_outcome_is_due = async || {
        // The first attempt is recorded with its backoff, for which no test has to wait.
        let made_due = async || make_payments_due(&owner).await.unwrap() == 1;
        until("the retry is due", DEFAULT_TIMEOUT, made_due).await.unwrap();
    };

    rail.then([Step::LoseAnswer]);
    enqueue(&owner, "book", "answer", "{}").await;
    unknown_outcome_is_due().await;
    ends_as(&owner, "answer", "DISPATCHED").await;
    rail.then([Step::LoseRequest]);
    enqueue(&owner, "book", "request", "{}").await;
    unknown_outcome_is_due().await;
    ends_as(&owner, "request", "DISPATCHED").await;
    rail.then([Step::Refuse("AC04".to_owned())]);
    enqueue(&owner, "book", "refused", "{}").await;
    ends_as(&owner, "refused", "FAILED").await;

    assert_eq!(rail.executed(), ["answer", "request"]);
    assert_eq!(rail.inquired(), ["answer", "request"]);
    // Only the request that had never arrived was sent again.
    assert_eq!(rail.dispatched(), ["answer", "request", "request", "refused"]);
    relayer.request_stop();
    relayer.ended().await;
}

#[tokio::test]
async fn the_lease_of_a_dead_relayer_is_taken_over_after_an_inquiry() {
    let (database, owner) = database("book").await;
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let rail = ScriptedRail::new();
    rail.then([Step::Hang]);
    let dead = Relayer::builder(&url).rail("book", rail.clone()).start().await.unwrap();
    enqueue(&owner, "book", "key-1", "{}").await;
    until("it was dispatched", DEFAULT_TIMEOUT, async || !rail.dispatched().is_empty()).await.unwrap();
    // As if its process had been killed.
    drop(dead);

    assert_eq!(expire_payment_leases(&owner).await.unwrap(), 1);
    let relayer = Relayer::builder(&url).rail("book", rail.clone()).start().await.unwrap();
    let executed = async || {
        make_payments_due(&owner).await.unwrap();
        !rail.executed().is_empty()
    };
    until("another relayer pays", DEFAULT_TIMEOUT, executed).await.unwrap();
    ends_as(&owner, "key-1", "DISPATCHED").await;
    assert_eq!((rail.inquired(), rail.executed()), (vec!["key-1".to_owned()], vec!["key-1".to_owned()]));
    relayer.request_stop();
    relayer.ended().await;
}
