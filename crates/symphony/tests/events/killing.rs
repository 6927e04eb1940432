//! Two relayers publish in strict order while relayers and the broker are killed in turn, at moments of progress that the database counts.
//! Afterwards a consumer of its own reads the broker: nothing is missing, and every aggregate is in order.
//!
//! `SYMPHONY_EVENTS` says how many events there are: 600 unless given, 100000 for the long form.

use std::time::Instant;

use symphony_proof::kit::audit::events;
use symphony_proof::kit::brokers::Kind;

use crate::course::Course;
use crate::publishers::Publishers;

/// How many events there are unless somebody wants more.
const EVENTS: usize = 600;

fn how_many() -> usize {
    std::env::var("SYMPHONY_EVENTS").map_or(EVENTS, |events| events.parse().unwrap())
}

async fn run(kind: Kind) {
    let events = how_many();
    // Three relayers and two brokers in the short form; more where there is more to lose.
    let kills = (events / 2_000).clamp(5, 29);
    let share = events / (kills + 1);
    let mut course = Course::open(kind).await;
    let began = Instant::now();
    let url = course.database.url_as_login(&["symphony_ingest"]).await.unwrap();
    let publishers = Publishers::begin(&url, events, share.min(1_000));
    for kill in 0..kills {
        course.processed((kill + 1) * share, &publishers).await;
        if kill % 2 == 0 {
            course.kill_relayer(kill / 2 % 2).await;
        } else {
            course.kill_broker(&publishers).await;
        }
    }
    course.processed(events, &publishers).await;
    let took = began.elapsed();

    let committed = publishers.end().await;
    assert_eq!(committed.len(), events);
    let arrived = course.bus.read().await;
    let report = events::compare(&committed, &arrived);
    assert!(report.findings.is_empty(), "{report:?}");
    assert_eq!(report.committed, events, "numbers were given twice");
    let repeats = report.repeats;
    if course.bus.drops_repeats() {
        assert_eq!(repeats, 0, "the broker drops repeats");
    }
    let handed_back = course.number("select sum(retry_count)::bigint from m10_recovery.outbox").await;
    println!(
        "{kind:?}: {events} events in {took:.1?}, {} relayers and {} brokers killed, {repeats} repeats, {handed_back} times handed back",
        kills.div_ceil(2),
        kills / 2,
    );
    for relayer in &course.relayers {
        let metrics = relayer.metrics().await;
        assert!(metrics.contains("lane=\"event\""), "{metrics}");
        assert!(!metrics.contains("lane=\"payment\""), "{metrics}");
        relayer.stop().await;
    }
}

#[tokio::test]
async fn nats_gets_every_event_in_order_though_relayers_and_broker_are_killed() {
    run(Kind::Nats).await;
}

#[tokio::test]
async fn rabbitmq_gets_every_event_in_order_though_relayers_and_broker_are_killed() {
    run(Kind::RabbitMq).await;
}

#[tokio::test]
async fn redis_gets_every_event_in_order_though_relayers_and_broker_are_killed() {
    run(Kind::Redis).await;
}
