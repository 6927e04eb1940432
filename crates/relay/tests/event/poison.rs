//! Events that the sink cannot process do not stop the others.

use symphony_relay::event::order::Order;

use crate::fixture::{Fixture, route};

#[tokio::test]
async fn a_hundred_events_that_fail_do_not_stop_the_others_in_either_order() {
    for order in [Order::Held, Order::Aggregate] {
        let fixture = Fixture::new().await;
        fixture.sink.set_poison("poison");
        let insert = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload)
                      select $1, i::text, 'Changed', '{}' from generate_series(1, 100) i";
        for aggregate_type in ["poison", "order"] {
            fixture.owner.execute(insert, &[&aggregate_type]).await.unwrap();
        }
        let relayer = fixture.start(order, vec![route("*", "*", "memory", "all")]);
        let processed = "select count(*) from m10_recovery.outbox where processed_at is not null";
        let all = async || fixture.count(processed).await == 100;
        fixture.until("all that do not fail are processed", all).await;
        let failed =
            "select count(*) from m10_recovery.outbox where aggregate_type = 'poison' and processed_at is null";
        assert_eq!(fixture.count(failed).await, 100);
        relayer.stop().await;
    }
}
