//! The event lane over a real PostgreSQL, with a sink in this process that remembers what it was given.

// All of it is a test, also what is not marked as one: the lints may know.
#![cfg(test)]

mod order;
mod outage;
mod stage;

use std::time::Duration;

use symphony_relay::event::order::Order;
use symphony_relay::sink::Published;

use stage::{Stage, route};

#[tokio::test]
async fn a_committed_event_is_published_once_and_processed() {
    let stage = Stage::set().await;
    let work = stage.start(Order::Held, vec![route("*", "*", "memory", "{aggregate_type}.{event_type}")]);
    let id = stage.publish("order", "7", "Placed").await;
    stage.until_processed(1).await;
    let sent = stage.sink.sent();
    assert_eq!(sent.len(), 1);
    let message = &sent[0];
    assert_eq!((message.id.as_str(), message.source.as_str()), (id.to_string().as_str(), "//test"));
    assert_eq!((message.aggregate_type.as_str(), message.aggregate_id.as_str()), ("order", "7"));
    assert_eq!((message.event_type.as_str(), message.destination.as_str()), ("Placed", "order.Placed"));
    assert_eq!(message.ordering_key(), "order/7");
    assert_eq!(message.data.parse::<serde_json::Value>().unwrap(), serde_json::json!({ "n": 1 }));
    work.end().await;
}

#[tokio::test]
async fn what_the_broker_did_not_confirm_comes_back_and_says_why() {
    let stage = Stage::set().await;
    stage.sink.answer_next(Published::Failed("the broker is away".into()));
    stage.sink.answer_next(Published::Refused("it is too large".into()));
    let work = stage.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    let id = stage.publish("order", "7", "Placed").await;
    // By itself it would come back after one second and then after two.
    stage.until_processed_hastened(1).await;
    assert_eq!(stage.sink.sent().len(), 3);
    assert_eq!(stage.errors(id).await, ["the broker is away", "it is too large"]);
    work.end().await;
}

#[tokio::test]
async fn while_the_only_sink_is_away_events_are_left_alone_but_for_one_at_a_time() {
    let stage = Stage::set().await;
    // More than make the breaker open, and more than are tried while it is.
    for _ in 0..100 {
        stage.sink.answer_next(Published::Failed("the broker is away".into()));
    }
    for number in 0..8 {
        stage.publish("order", &number.to_string(), "Placed").await;
    }
    // They are there before the relayer is, so one claim brings them all: none is under way when the breaker opens.
    let work = stage.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    stage.until_failures(8).await;
    let tried = stage.sink.sent().len();
    for number in 8..60 {
        stage.publish("order", &number.to_string(), "Placed").await;
    }
    stage.until_hastened("the sink is tried again, twice", async || stage.sink.sent().len() >= tried + 2).await;
    let handed_back = "select count(*) from m10_recovery.outbox_errors where error <> 'the broker is away'";
    assert_eq!(stage.count(handed_back).await, 0);
    stage.sink.confirm_all();
    stage.until_processed_hastened(60).await;
    work.end().await;
}

#[tokio::test]
async fn an_event_that_no_route_fits_waits_and_holds_up_nobody() {
    let stage = Stage::set().await;
    let work = stage.start(Order::Held, vec![route("order", "*", "memory", "all")]);
    let lost = stage.publish("cart", "7", "Emptied").await;
    stage.publish("order", "7", "Placed").await;
    stage.until_processed(1).await;
    stage.until_errors(lost, 1).await;
    assert_eq!(stage.errors(lost).await[0], "no route fits Emptied of cart");
    work.end().await;
}

#[tokio::test]
async fn a_relayer_that_stops_finishes_what_it_holds() {
    let stage = Stage::set().await;
    stage.sink.take(Duration::from_millis(300));
    let work = stage.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    for number in 0..20 {
        stage.publish("order", &number.to_string(), "Placed").await;
    }
    stage.until_sent(1).await;
    work.end().await;
    let held = "select count(*) from m10_recovery.outbox where processed_at is null and claimed_at is not null";
    assert_eq!(stage.count(held).await, 0);
}
