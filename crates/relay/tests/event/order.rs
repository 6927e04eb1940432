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
async fn with_strict_order_an_event_is_left_alone_while_somebody_else_holds_an_earlier_one() {
    let stage = Stage::set().await;
    let first = stage.publish("order", "7", "Placed").await;
    let another = stage.another().await;
    another.execute("select m10_recovery.claim_outbox_events('another', 1)", &[]).await.unwrap();
    let second = stage.publish("order", "7", "Paid").await;
    let free = stage.publish("order", "8", "Placed").await;
    let work = stage.start(Order::Aggregate, vec![route("*", "*", "memory", "all")]);
    stage.until_processed(1).await;
    assert_eq!(stage.sink.sent().iter().map(|sent| sent.id.clone()).collect::<Vec<_>>(), [free.to_string()]);
    another.execute("select m10_recovery.complete_outbox_event($1, 'another', true)", &[&first]).await.unwrap();
    stage.until_processed(3).await;
    assert_eq!(stage.sink.sent().last().unwrap().id, second.to_string());
    assert_eq!(
        stage.count("select sum(retry_count) from m10_recovery.outbox").await,
        0,
        "nothing was handed back"
    );
    work.end().await;
}

#[tokio::test]
async fn with_strict_order_an_event_goes_back_when_an_earlier_one_is_committed_while_it_waits_and_says_so() {
    let stage = Stage::set().await;
    stage.publish("order", "7", "Placed").await;
    let another = stage.another().await;
    another.batch_execute("begin").await.unwrap();
    let publish = "select m10_recovery.publish_outbox('order', '7', 'Paid', '{}')";
    let late: i64 = another.query_one(publish, &[]).await.unwrap().get(0);
    let last = stage.publish("order", "7", "Shipped").await;
    stage.sink.hold(true);
    let work = stage.start(Order::Aggregate, vec![route("*", "*", "memory", "all")]);
    let claimed = "select count(*) from m10_recovery.outbox where claimed_at is not null";
    stage.until("both are claimed", async || stage.count(claimed).await == 2).await;
    another.batch_execute("commit").await.unwrap();
    stage.sink.hold(false);
    stage.until_processed(3).await;
    let sent: Vec<_> = stage.sink.sent().iter().map(|sent| sent.id.parse::<i64>().unwrap()).collect();
    assert!(sent.is_sorted() && sent.len() == 3, "{sent:?}");
    assert_eq!(stage.errors(last).await, [format!("waits behind event {late}")]);
    work.end().await;
}

#[tokio::test]
async fn with_strict_order_what_waits_leaves_slots_to_other_aggregates() {
    let stage = Stage::set().await;
    for _ in 0..200 {
        stage.publish("order", "hot", "Changed").await;
    }
    stage.sink.hold(true);
    let work = stage.start(Order::Aggregate, vec![route("*", "*", "memory", "all")]);
    let claimed = async |aggregate: &str| {
        let claimed =
            "select count(*) from m10_recovery.outbox where claimed_at is not null and aggregate_id = $1";
        stage.owner.query_one(claimed, &[&aggregate]).await.unwrap().get::<_, i64>(0)
    };
    stage.until("the hot one is claimed", async || claimed("hot").await > 1).await;
    for number in 0..30 {
        stage.publish("order", &number.to_string(), "Placed").await;
    }
    // All of those stand at the sink beside the first of the hot one: none of them waits for it.
    stage.until("the others are at the sink", async || stage.sink.running() == 31).await;
    assert_eq!(claimed("hot").await, 33, "half of the slots are for those that wait");
    stage.sink.hold(false);
    stage.until_processed(230).await;
    assert_eq!(
        stage.count("select sum(retry_count) from m10_recovery.outbox").await,
        0,
        "nothing was handed back"
    );
    work.end().await;
}
