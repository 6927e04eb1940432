//! In which order the events of one aggregate leave.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use symphony_relay::event::order::Order;
use symphony_relay::sink::{Message, Published};

use crate::stage::{Stage, route};

/// The numbers of each aggregate as they left, repeats dropped.
fn by_aggregate(sent: &[Message]) -> BTreeMap<String, Vec<i64>> {
    let mut seen = BTreeSet::new();
    let mut orders: BTreeMap<String, Vec<i64>> = BTreeMap::new();
    for message in sent {
        let id: i64 = message.id.parse().unwrap();
        if seen.insert(id) {
            orders.entry(message.ordering_key()).or_default().push(id);
        }
    }
    orders
}

#[tokio::test]
async fn events_that_a_relayer_holds_leave_by_number_one_at_a_time() {
    let stage = Stage::set().await;
    stage.sink.take(Duration::from_millis(5));
    for number in 0..60 {
        stage.publish("order", &(number % 3).to_string(), "Changed").await;
    }
    let work = stage.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    stage.until_processed(60).await;
    assert_eq!(stage.sink.most_of_one(), 1);
    for (aggregate, numbers) in by_aggregate(&stage.sink.sent()) {
        assert!(numbers.is_sorted(), "{aggregate}: {numbers:?}");
    }
    work.end().await;
}

#[tokio::test]
async fn with_strict_order_nothing_overtakes_over_a_fleet_that_fails_now_and_then() {
    let stage = Stage::set().await;
    for number in 0..40 {
        stage.publish("order", &(number % 4).to_string(), "Changed").await;
    }
    for _ in 0..6 {
        stage.sink.answer_next(Published::Confirmed { repeat: false });
        stage.sink.answer_next(Published::Failed("the broker is away".into()));
    }
    let routes = || vec![route("*", "*", "memory", "all")];
    let (one, other) = (stage.start(Order::Aggregate, routes()), stage.start(Order::Aggregate, routes()));
    stage.until_processed_hastened(40).await;
    one.end().await;
    other.end().await;
    // What failed at the broker was given to it all the same: its last time counts.
    let mut sent = stage.sink.sent();
    sent.reverse();
    for (aggregate, mut numbers) in by_aggregate(&sent) {
        numbers.reverse();
        assert!(numbers.is_sorted(), "{aggregate}: {numbers:?}");
    }
}

#[tokio::test]
async fn with_strict_order_an_event_waits_behind_one_that_somebody_else_holds_and_says_so() {
    let stage = Stage::set().await;
    let first = stage.publish("order", "7", "Placed").await;
    let another = stage.another().await;
    another.execute("select m10_recovery.claim_outbox_events('another', 1)", &[]).await.unwrap();
    let second = stage.publish("order", "7", "Paid").await;
    let work = stage.start(Order::Aggregate, vec![route("*", "*", "memory", "all")]);
    let free = stage.publish("order", "8", "Placed").await;
    stage.until_processed(1).await;
    stage.until_errors(second, 1).await;
    assert_eq!(stage.errors(second).await[0], format!("waits behind event {first}"));
    assert_eq!(stage.sink.sent().iter().map(|sent| sent.id.clone()).collect::<Vec<_>>(), [free.to_string()]);
    another.execute("select m10_recovery.complete_outbox_event($1, 'another', true)", &[&first]).await.unwrap();
    stage.until_processed_hastened(3).await;
    assert_eq!(stage.sink.sent().last().unwrap().id, second.to_string());
    work.end().await;
}
