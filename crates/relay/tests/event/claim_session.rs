//! A relayer whose claim session has ended sends no more of what it claimed under it: another may have it by now.

use symphony_relay::event::order::Order;

use crate::fixture::{Fixture, route};

#[tokio::test]
async fn what_was_not_sent_when_the_claim_session_ended_is_sent_once() {
    let fixture = Fixture::new().await;
    fixture.sink.block(true);
    let (first, second) =
        (fixture.publish("order", "7", "Placed").await, fixture.publish("order", "7", "Paid").await);
    let relayer = fixture.start(Order::Held, vec![route("*", "*", "memory", "all")]);
    fixture.until("the first is being sent", async || fixture.sink.running() == 1).await;
    // The second waits for the first, in the same process.
    let end = "select pg_terminate_backend(l.pid)
               from m10_recovery.outbox o
               join pg_locks l on lpad(to_hex(l.classid::bigint << 32 | l.objid::bigint), 16, '0') = split_part(split_part(o.claimed_by, '#', 2), '.', 2)
               where l.locktype = 'advisory' and o.claimed_by is not null
               limit 1";
    assert!(fixture.owner.query_one(end, &[]).await.unwrap().get::<_, bool>(0));
    // The relayer has opened another session, and released what it holds itself.
    fixture.until_errors(first, 1).await;
    fixture.until_errors(second, 1).await;
    fixture.sink.block(false);
    fixture.until_processed_skipping_backoff(2).await;
    relayer.stop().await;
    let sent = |id: i64| fixture.sink.sent().iter().filter(|message| message.id == id.to_string()).count();
    assert_eq!(sent(second), 1, "it was not sent under the claim that had ended");
    assert_eq!(sent(first), 2, "what was being sent is sent again: at least once");
}
