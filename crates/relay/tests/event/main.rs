//! The event lane on a real PostgreSQL, with a fake sink.

// The whole crate is a test, so that lints treat its helpers as test code.
#![cfg(test)]

mod claim_session;
mod fixture;
mod old_primary;
mod order;
mod outage;
mod poison;
mod slow_sinks;

use std::time::Duration;

use symphony_relay::event::order::Order;
use symphony_relay::sink::Published;

use fixture::{Fixture, route};

#[tokio::test]
async fn a_committed_event_is_published_once_and_processed() {
    let fixture = Fixture::new().await;
    let relayer = fixture.start(Order::Held, vec![route("*", "*", "memory", "{aggregate_type}.{event_type}")]);
    let id = fixture.publish("order", "7", "Placed").await;
    fixture.until_processed(1).await;
    let sent = fixture.sink.sent();
    assert_eq!(sent.len(), 1);
    let message = &sent[0];
    assert_eq!((message.id.as_str(), message.source.as_str()), (id.to_string().as_str(), "//test"));
    assert_eq!((message.aggregate_type.as_str(), message.aggregate_id.as_str()), ("order", "7"));
    assert_eq!((message.event_type.as_str(), message.destination.as_str()), ("Placed", "order.Placed"));
    assert_eq!(message.ordering_key(), "order/7");
    assert_eq!(message.data.parse::<serde_json::Value>().unwrap(), serde_json::json!({ "n": 1 }));
    relayer.stop().await;
}

#[tokio::test]
async fn an_unconfirmed_event_is_retried_and_records_why() {
    let fixture = Fixture::new().await;
    fixture.sink.answer_next(Published::Failed("the broker is down".into()));
    fixture.sink.answer_next(Published::Refused("it is too large".into()));
    let relayer = fixture.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    let id = fixture.publish("order", "7", "Placed").await;
    // Its backoff would be one second, and then two.
    fixture.until_processed_skipping_backoff(1).await;
    assert_eq!(fixture.sink.sent().len(), 3);
    assert_eq!(fixture.errors(id).await, ["the broker is down", "it is too large"]);
    relayer.stop().await;
}

#[tokio::test]
async fn while_the_only_sink_is_down_events_stay_pending_except_one_probe_at_a_time() {
    let fixture = Fixture::new().await;
    // Enough to open the breaker and to fail every probe.
    for _ in 0..100 {
        fixture.sink.answer_next(Published::Failed("the broker is down".into()));
    }
    for number in 0..8 {
        fixture.publish("order", &number.to_string(), "Placed").await;
    }
    // They exist before the relayer starts, so one claim returns them all: none is in flight when the breaker opens.
    let relayer = fixture.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    fixture.until_failures(8).await;
    let attempts = fixture.sink.sent().len();
    for number in 8..60 {
        fixture.publish("order", &number.to_string(), "Placed").await;
    }
    fixture.until_skipping_backoff("two probes", async || fixture.sink.sent().len() >= attempts + 2).await;
    let other_errors = "select count(*) from m10_recovery.outbox_errors where error <> 'the broker is down'";
    assert_eq!(fixture.count(other_errors).await, 0);
    fixture.sink.confirm_all();
    fixture.until_processed_skipping_backoff(60).await;
    relayer.stop().await;
}

#[tokio::test]
async fn an_event_without_a_route_fails_and_blocks_no_other() {
    let fixture = Fixture::new().await;
    let relayer = fixture.start(Order::Held, vec![route("order", "*", "memory", "all")]);
    let unrouted = fixture.publish("cart", "7", "Emptied").await;
    fixture.publish("order", "7", "Placed").await;
    fixture.until_processed(1).await;
    fixture.until_errors(unrouted, 1).await;
    assert_eq!(fixture.errors(unrouted).await[0], "no route matches Emptied of cart");
    relayer.stop().await;
}

#[tokio::test]
async fn a_relayer_that_stops_completes_its_claims() {
    let fixture = Fixture::new().await;
    fixture.sink.set_latency(Duration::from_millis(300));
    let relayer = fixture.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    for number in 0..20 {
        fixture.publish("order", &number.to_string(), "Placed").await;
    }
    fixture.until_sent(1).await;
    relayer.stop().await;
    let held = "select count(*) from m10_recovery.outbox where processed_at is null and claimed_at is not null";
    assert_eq!(fixture.count(held).await, 0);
}
