//! The cost of a broker outage with strict order: how often events are released, and how long the relayers take to
//! catch up, with the backoff of the contract. Each case prints its result.

use std::time::Instant;

use symphony_relay::event::order::Order;

use crate::fixture::{Fixture, route};

/// The broker goes down after a tenth of the events is published, until `failures` attempts have failed.
struct Case {
    events: i32,
    aggregates: i32,
    relayers: usize,
    failures: i64,
}

impl Case {
    /// How many releases there were because an event had to wait: in total, and the maximum for one event.
    async fn run(&self) -> (i64, i64) {
        let fixture = Fixture::new().await;
        let insert = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload)
                      select 'order', (i % $2)::text, 'Changed', '{}' from generate_series(0, $1 - 1) i";
        fixture.owner.execute(insert, &[&self.events, &self.aggregates]).await.unwrap();
        let begin = |_| fixture.start(Order::Aggregate, vec![route("*", "*", "memory", "all")]);
        let running: Vec<_> = (0..self.relayers).map(begin).collect();
        fixture.until_processed(i64::from(self.events / 10)).await;
        fixture.sink.set_down(true);
        let failures = "select count(*) from m10_recovery.outbox_errors where error = 'the broker is down'";
        fixture.until("attempts have failed", async || fixture.count(failures).await >= self.failures).await;
        fixture.sink.set_down(false);
        let recovered = Instant::now();
        fixture.until_processed(i64::from(self.events)).await;
        let took = recovered.elapsed();
        for relayer in running {
            relayer.stop().await;
        }
        let number = async |sql: &str| fixture.count(sql).await;
        let waited = "from m10_recovery.outbox_errors where error like 'waits behind%'";
        let total = number(&format!("select count(*) {waited}")).await;
        let max = format!("select coalesce(max(n), 0) from (select count(*) as n {waited} group by event_id) w");
        let (max, retries) =
            (number(&max).await, number("select sum(retry_count) from m10_recovery.outbox").await);
        let Self { events, aggregates, relayers, failures } = self;
        println!(
            "{events} events of {aggregates} aggregates, {relayers} relayers, {failures} failures: caught up {took:.1?} \
             after the broker was back, {retries} retries, {total} of them by waiting, at most {max} per event"
        );
        (total, max)
    }
}

#[tokio::test]
async fn after_an_outage_one_aggregate_catches_up_and_releases_each_event_at_most_once() {
    let case = Case { events: 400, aggregates: 1, relayers: 1, failures: 2 };
    let (total, max) = case.run().await;
    assert!(total <= 32 && max <= 1, "{total} in total, {max} for one event");
}

#[tokio::test]
async fn after_an_outage_three_relayers_catch_up_with_eight_aggregates_and_release_each_event_at_most_once() {
    let case = Case { events: 800, aggregates: 8, relayers: 3, failures: 9 };
    let (total, max) = case.run().await;
    assert!(total <= 3 * 32 && max <= 1, "{total} in total, {max} for one event");
}
