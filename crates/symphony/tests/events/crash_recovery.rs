//! Two relayers publish in aggregate order while the test kills relayers and the broker in turn.
//!
//! The database's count of processed events decides when. Afterwards a separate consumer reads the broker: no event is
//! missing, and every aggregate is in order.
//!
//! `SYMPHONY_EVENTS` sets the number of events: 600 by default, 100000 for the long form.

use std::time::Instant;

use symphony_testkit::brokers::Kind;
use symphony_testkit::reconciliation::events;

use crate::harness::Harness;
use crate::producers::Producers;

const DEFAULT_EVENTS: usize = 600;

fn event_count() -> usize {
    std::env::var("SYMPHONY_EVENTS").map_or(DEFAULT_EVENTS, |events| events.parse().unwrap())
}

async fn run(kind: Kind) {
    let events = event_count();
    // The short form kills three relayers and two brokers.
    let kills = (events / 2_000).clamp(5, 29);
    let share = events / (kills + 1);
    let mut harness = Harness::start(kind).await;
    let began = Instant::now();
    let url = harness.database.url_as_login(&["symphony_ingest"]).await.unwrap();
    let producers = Producers::start(&url, events, share.min(1_000));
    for kill in 0..kills {
        harness.wait_for_processed((kill + 1) * share, &producers).await;
        if kill % 2 == 0 {
            harness.kill_relayer(kill / 2 % 2).await;
        } else {
            harness.kill_broker(&producers).await;
        }
    }
    harness.wait_for_processed(events, &producers).await;
    let took = began.elapsed();

    let committed = producers.finish().await;
    assert_eq!(committed.len(), events);
    let arrived = harness.broker.read().await;
    let report = events::compare(&committed, &arrived);
    assert!(report.findings.is_empty(), "{report:?}");
    assert_eq!(report.committed, events, "event ids were given twice");
    let repeats = report.repeats;
    if harness.broker.deduplicates() {
        assert_eq!(repeats, 0, "the broker deduplicates");
    }
    let retries = harness.query_number("select sum(retry_count)::bigint from m10_recovery.outbox").await;
    println!(
        "{kind:?}: {events} events in {took:.1?}, {} relayers and {} brokers killed, {repeats} repeats, {retries} retries",
        kills.div_ceil(2),
        kills / 2,
    );
    for relayer in &harness.relayers {
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
