//! Sinks that do not answer leave slots to one that does, however many they are and however much waits for them.

use std::collections::BTreeMap;
use std::sync::Arc;

use symphony_relay::event::order::Order;

use crate::fixture::{FakeSink, Fixture, SLOTS, route};

/// What waits for the slow ones, more than a claim reads of one kind.
const WAITING: i64 = 15_000;
const QUICK: i64 = 300;

async fn publish(fixture: &Fixture, aggregate_type: &str, count: i64) {
    let insert = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload)
                  select $1, (i % 500)::text, 'Changed', '{}' from generate_series(1, $2::bigint) i";
    fixture.owner.execute(insert, &[&aggregate_type, &count]).await.unwrap();
}

async fn slow_sinks_leave_slots(order: Order, slow: usize) {
    let fixture = Fixture::new().await;
    let name = |number: usize| format!("slow-{number}");
    let sinks: BTreeMap<String, Arc<FakeSink>> =
        (0..slow).map(name).chain(["quick".to_owned()]).map(|name| (name, Arc::default())).collect();
    let routes = sinks.keys().map(|sink| route(sink, "*", sink, "all")).collect();
    for number in 0..slow {
        sinks[&name(number)].block(true);
        publish(&fixture, &name(number), WAITING / i64::try_from(slow).unwrap()).await;
        if number == slow / 2 {
            publish(&fixture, "quick", QUICK).await;
        }
    }
    let relayer = fixture.start_with(order, routes, sinks.clone());
    fixture.until_processed(QUICK).await;
    publish(&fixture, "quick", QUICK).await;
    fixture.until_processed(2 * QUICK).await;

    let running: usize = (0..slow).map(|number| sinks[&name(number)].running()).sum();
    assert!((slow..=SLOTS * 3 / 4 + slow).contains(&running), "{running} of {SLOTS} slots");
    let released = "select count(*) from m10_recovery.outbox_errors";
    assert_eq!(fixture.count(released).await, 0, "nothing was claimed that had no slot");
    (0..slow).for_each(|number| sinks[&name(number)].block(false));
    relayer.stop().await;
}

#[tokio::test]
async fn two_sinks_that_do_not_answer_leave_slots_to_a_third_in_either_order() {
    slow_sinks_leave_slots(Order::Held, 2).await;
    slow_sinks_leave_slots(Order::Aggregate, 2).await;
}

#[tokio::test]
async fn twelve_sinks_that_do_not_answer_leave_slots_to_another() {
    slow_sinks_leave_slots(Order::Held, 12).await;
}
