//! What an outage costs where order is strict: how often events go back, and how long it takes to catch up, with the delays of the
//! contract as they are. What a case gave is printed.

use std::time::Instant;

use symphony_relay::event::order::Order;

use crate::stage::{Stage, route};

/// Events of so many aggregates; the broker goes away when a tenth has left, until so many attempts have failed.
struct Case {
    events: i32,
    aggregates: i32,
    relayers: usize,
    failures: i64,
}

impl Case {
    /// How often an event went back because it had to wait: in all, and the most for one.
    async fn run(&self) -> (i64, i64) {
        let stage = Stage::set().await;
        let insert = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload)
                      select 'order', (i % $2)::text, 'Changed', '{}' from generate_series(0, $1 - 1) i";
        stage.owner.execute(insert, &[&self.events, &self.aggregates]).await.unwrap();
        let begin = |_| stage.start(Order::Aggregate, vec![route("*", "*", "memory", "all")]);
        let works: Vec<_> = (0..self.relayers).map(begin).collect();
        stage.until_processed(i64::from(self.events / 10)).await;
        stage.sink.go_away(true);
        let failures = "select count(*) from m10_recovery.outbox_errors where error = 'the broker is away'";
        stage.until("attempts fail", async || stage.count(failures).await >= self.failures).await;
        stage.sink.go_away(false);
        let back = Instant::now();
        stage.until_processed(i64::from(self.events)).await;
        let took = back.elapsed();
        for work in works {
            work.end().await;
        }
        let number = async |sql: &str| stage.count(sql).await;
        let waited = "from m10_recovery.outbox_errors where error like 'waits behind%'";
        let in_all = number(&format!("select count(*) {waited}")).await;
        let most = format!("select coalesce(max(n), 0) from (select count(*) as n {waited} group by event_id) w");
        let (most, retries) =
            (number(&most).await, number("select sum(retry_count) from m10_recovery.outbox").await);
        let Self { events, aggregates, relayers, failures } = self;
        println!(
            "{events} events of {aggregates} aggregates, {relayers} relayers, {failures} failures: caught up {took:.1?} \
             after it was back, {retries} retries, {in_all} of them by waiting, {most} at most of one event"
        );
        (in_all, most)
    }
}

#[tokio::test]
async fn one_aggregate_catches_up_and_each_event_waits_in_vain_once_at_most() {
    let case = Case { events: 400, aggregates: 1, relayers: 1, failures: 2 };
    let (in_all, most) = case.run().await;
    assert!(in_all <= 32 && most <= 1, "{in_all} in all, {most} of one");
}

#[tokio::test]
async fn three_relayers_catch_up_with_eight_aggregates_and_do_not_get_in_each_others_way() {
    let case = Case { events: 800, aggregates: 8, relayers: 3, failures: 9 };
    let (in_all, most) = case.run().await;
    assert!(in_all <= 3 * 32 && most <= 1, "{in_all} in all, {most} of one");
}
