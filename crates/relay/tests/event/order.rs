//! The order in which events of one aggregate are published.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use symphony_relay::event::order::Order;
use symphony_relay::sink::{Message, Published};

use crate::fixture::{Fixture, route};

/// The event numbers of each aggregate as they were published, without repeats.
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
async fn events_that_a_relayer_holds_are_published_by_number_one_at_a_time() {
    let fixture = Fixture::new().await;
    fixture.sink.set_latency(Duration::from_millis(5));
    for number in 0..60 {
        fixture.publish("order", &(number % 3).to_string(), "Changed").await;
    }
    let relayer = fixture.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    fixture.until_processed(60).await;
    assert_eq!(fixture.sink.max_concurrent_per_key(), 1);
    for (aggregate, numbers) in by_aggregate(&fixture.sink.sent()) {
        assert!(numbers.is_sorted(), "{aggregate}: {numbers:?}");
    }
    relayer.stop().await;
}

#[tokio::test]
async fn with_strict_order_no_event_is_published_before_an_earlier_one_by_relayers_with_failures() {
    let fixture = Fixture::new().await;
    for number in 0..40 {
        fixture.publish("order", &(number % 4).to_string(), "Changed").await;
    }
    for _ in 0..6 {
        fixture.sink.answer_next(Published::Confirmed { repeat: false });
        fixture.sink.answer_next(Published::Failed("the broker is down".into()));
    }
    let routes = || vec![route("*", "*", "memory", "all")];
    let (one, other) = (fixture.start(Order::Aggregate, routes()), fixture.start(Order::Aggregate, routes()));
    fixture.until_processed_skipping_backoff(40).await;
    one.stop().await;
    other.stop().await;
    // The fake records failed events too: the last attempt counts.
    let mut sent = fixture.sink.sent();
    sent.reverse();
    for (aggregate, mut numbers) in by_aggregate(&sent) {
        numbers.reverse();
        assert!(numbers.is_sorted(), "{aggregate}: {numbers:?}");
    }
}

#[tokio::test]
async fn with_strict_order_an_event_is_not_claimed_while_another_worker_holds_an_earlier_one() {
    let fixture = Fixture::new().await;
    let first = fixture.publish("order", "7", "Placed").await;
    let session = fixture.second_session().await;
    session.execute("select m10_recovery.claim_outbox_events('worker-2', 1)", &[]).await.unwrap();
    let second = fixture.publish("order", "7", "Paid").await;
    let free = fixture.publish("order", "8", "Placed").await;
    let relayer = fixture.start(Order::Aggregate, vec![route("*", "*", "memory", "all")]);
    fixture.until_processed(1).await;
    assert_eq!(fixture.sink.sent().iter().map(|sent| sent.id.clone()).collect::<Vec<_>>(), [free.to_string()]);
    session.execute("select m10_recovery.complete_outbox_event($1, 'worker-2', true)", &[&first]).await.unwrap();
    fixture.until_processed(3).await;
    assert_eq!(fixture.sink.sent().last().unwrap().id, second.to_string());
    assert_eq!(
        fixture.count("select sum(retry_count) from m10_recovery.outbox").await,
        0,
        "no event was released"
    );
    relayer.stop().await;
}

#[tokio::test]
async fn with_strict_order_an_event_is_released_with_the_reason_when_an_earlier_one_commits_while_it_waits() {
    let fixture = Fixture::new().await;
    fixture.publish("order", "7", "Placed").await;
    let session = fixture.second_session().await;
    session.batch_execute("begin").await.unwrap();
    let publish = "select m10_recovery.publish_outbox('order', '7', 'Paid', '{}')";
    let late: i64 = session.query_one(publish, &[]).await.unwrap().get(0);
    let last = fixture.publish("order", "7", "Shipped").await;
    fixture.sink.block(true);
    let relayer = fixture.start(Order::Aggregate, vec![route("*", "*", "memory", "all")]);
    let claimed = "select count(*) from m10_recovery.outbox where claimed_at is not null";
    fixture.until("both are claimed", async || fixture.count(claimed).await == 2).await;
    session.batch_execute("commit").await.unwrap();
    fixture.sink.block(false);
    fixture.until_processed(3).await;
    let sent: Vec<_> = fixture.sink.sent().iter().map(|sent| sent.id.parse::<i64>().unwrap()).collect();
    assert!(sent.is_sorted() && sent.len() == 3, "{sent:?}");
    assert_eq!(fixture.errors(last).await, [format!("waits behind event {late}")]);
    relayer.stop().await;
}

#[tokio::test]
async fn with_strict_order_waiting_events_leave_slots_to_other_aggregates() {
    let fixture = Fixture::new().await;
    for _ in 0..200 {
        fixture.publish("order", "hot", "Changed").await;
    }
    fixture.sink.block(true);
    let relayer = fixture.start(Order::Aggregate, vec![route("*", "*", "memory", "all")]);
    let claimed = async |aggregate: &str| {
        let claimed =
            "select count(*) from m10_recovery.outbox where claimed_at is not null and aggregate_id = $1";
        fixture.owner.query_one(claimed, &[&aggregate]).await.unwrap().get::<_, i64>(0)
    };
    fixture.until("the hot aggregate is claimed", async || claimed("hot").await > 1).await;
    for number in 0..30 {
        fixture.publish("order", &number.to_string(), "Placed").await;
    }
    // All of those are at the sink beside the first event of the hot aggregate: none of them waits for it.
    fixture.until("the others are at the sink", async || fixture.sink.running() == 31).await;
    assert_eq!(claimed("hot").await, 33, "half of the slots are for waiting events");
    fixture.sink.block(false);
    fixture.until_processed(230).await;
    assert_eq!(
        fixture.count("select sum(retry_count) from m10_recovery.outbox").await,
        0,
        "no event was released"
    );
    relayer.stop().await;
}
