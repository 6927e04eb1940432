//! Claims that keep the order of each aggregate.

use symphony_db::BatchSize;
use symphony_db::event::EventId;
use symphony_db::event::worker::{Claim, Completion, Outcome, claim_in_order, complete, complete_batch};
use tokio_postgres::Client;

use crate::fixture::Fixture;

/// Publishes events of these aggregates, a letter each; their numbers are 1, 2, 3 …
async fn publish(root: &Client, aggregates: &str) {
    for aggregate in aggregates.chars().map(String::from) {
        let publish = "select m10_recovery.publish_outbox('order', $1, 'Changed', '{}')";
        root.query_one(publish, &[&aggregate]).await.unwrap();
    }
}

async fn claim(client: &Client, size: u16, followers: u16) -> Claim {
    let size = BatchSize::try_from(size).unwrap();
    claim_in_order(client, &"worker-1".into(), size, followers).await.unwrap()
}

fn numbers(claim: &Claim) -> Vec<i64> {
    claim.events.iter().map(|event| event.id.0).collect()
}

async fn end(client: &Client, claim: &Claim, number: i64, outcome: Outcome) {
    complete(client, &claim.processor, EventId(number), &outcome).await.unwrap();
}

const FAILED: Outcome = Outcome::Failed { error: None };

#[tokio::test]
async fn a_claim_brings_heads_and_so_many_followers_the_nearest_first() {
    let fixture = Fixture::new().await;
    publish(&fixture.root, "aaaabbc").await;
    let executor = fixture.login("symphony_executor").await;
    let none = claim(&executor, 10, 0).await;
    assert_eq!(numbers(&none), [1, 5, 7]);
    assert_eq!(numbers(&claim(&executor, 10, 10).await), [0; 0], "all others wait behind those");
    end(&executor, &none, 1, Outcome::Delivered).await;
    end(&executor, &none, 5, FAILED).await;
    let later = "update m10_recovery.outbox set process_after = now() + interval '1 hour' where id = 5";
    fixture.root.batch_execute(later).await.unwrap();
    let some = claim(&executor, 10, 1).await;
    assert_eq!(numbers(&some), [2, 3], "4 is one too many, and 6 is behind one that is not due");
    end(&executor, &some, 2, Outcome::Delivered).await;
    assert_eq!(numbers(&claim(&executor, 10, 10).await), [0; 0], "4 is behind one that is claimed");
}

#[tokio::test]
async fn a_head_that_has_failed_goes_alone() {
    let fixture = Fixture::new().await;
    publish(&fixture.root, "aaab").await;
    let held = claim(&fixture.root, 10, 10).await;
    assert_eq!(numbers(&held), [1, 2, 3, 4]);
    for number in 1..=3 {
        end(&fixture.root, &held, number, FAILED).await;
    }
    fixture.root.batch_execute("update m10_recovery.outbox set process_after = now()").await.unwrap();
    let alone = claim(&fixture.root, 10, 10).await;
    assert_eq!(alone.events.iter().map(|event| (event.id.0, event.retry_count)).collect::<Vec<_>>(), [(1, 1)]);
}

#[tokio::test]
async fn the_claims_of_the_dead_are_taken_over_in_order() {
    let fixture = Fixture::new().await;
    publish(&fixture.root, "aaa").await;
    assert_eq!(numbers(&claim(&fixture.root, 10, 1).await), [1, 2]);
    fixture.expire_claims().await;
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [1, 2, 3]);
}

#[tokio::test]
async fn beside_a_claim_that_is_not_committed_yet_nothing_of_its_aggregates_is_taken() {
    let fixture = Fixture::new().await;
    publish(&fixture.root, "aaaaabcccc").await;
    let other = fixture.login("symphony_executor").await;
    other.batch_execute("begin").await.unwrap();
    assert_eq!(numbers(&claim(&other, 2, 0).await), [1, 6]);
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [7, 8, 9, 10]);
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [1, 2, 3, 4, 5, 6]);
}

#[tokio::test]
async fn behind_an_event_that_could_not_be_locked_nothing_is_taken() {
    let fixture = Fixture::new().await;
    publish(&fixture.root, "aaaa").await;
    let other = fixture.database.connect().await.unwrap();
    other.batch_execute("begin; select from m10_recovery.outbox where id = 2 for update").await.unwrap();
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [1]);
}

#[tokio::test]
async fn what_waits_behind_one_head_does_not_hide_the_heads_of_others() {
    let fixture = Fixture::new().await;
    let backlog =
        "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, process_after)
                 select 'order', 'm', 'Changed', '{}', case when i = 1 then now() + interval '1 hour' end
                 from generate_series(1, 500) i";
    fixture.root.batch_execute(backlog).await.unwrap();
    publish(&fixture.root, "az").await;
    // It looks at 200 by number, and all of those wait.
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [501, 502]);
}

#[tokio::test]
async fn a_completion_names_the_first_unprocessed_event_of_the_aggregate() {
    let fixture = Fixture::new().await;
    publish(&fixture.root, "aaabc").await;
    let held = claim(&fixture.root, 2, 1).await;
    assert_eq!(numbers(&held), [1, 4]);
    let next = async |claim: &Claim, number, outcome| {
        let completion = Completion { id: EventId(number), processor: claim.processor.clone(), outcome };
        let mut completed = complete_batch(&fixture.root, &[completion], true).await.unwrap();
        let completed = completed.remove(0);
        assert!(completed.refused.is_none(), "{completed:?}");
        completed.next.map(|next| (next.id.0, next.is_claimed))
    };
    assert_eq!(next(&held, 1, Outcome::Delivered).await, Some((2, false)));
    assert_eq!(next(&held, 4, Outcome::Delivered).await, None, "the only event of its aggregate");
    let held = claim(&fixture.root, 3, 1).await;
    assert_eq!(numbers(&held), [2, 3, 5]);
    assert_eq!(next(&held, 2, Outcome::Delivered).await, Some((3, true)));
    assert_eq!(next(&held, 3, FAILED).await, Some((3, false)));
}

/// Publishes events of these aggregates as one statement, each number of events in turn; the first of each waits an hour for its retry.
async fn publish_blocked(root: &Client, aggregates: i32, events: i32) {
    let backlog =
        "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, retry_count, process_after)
         select 'order', 'blocked-' || a, 'Changed', '{}', case when e = 1 then 9 else 0 end,
                case when e = 1 then now() + interval '1 hour' end
         from generate_series(1, $2) e, generate_series(1, $1) a
         order by e, a";
    root.execute(backlog, &[&aggregates, &events]).await.unwrap();
}

const PARKED: &str = "m10_recovery.outbox_unprocessed where is_parked";

#[tokio::test]
async fn events_behind_6000_heads_that_wait_for_their_retry_do_not_hide_a_healthy_type() {
    let fixture = Fixture::new().await;
    publish_blocked(&fixture.root, 6_000, 2).await;
    for number in 1..=50 {
        let publish = "select m10_recovery.publish_outbox('shipment', $1, 'Sent', '{}')";
        fixture.root.query_one(publish, &[&number.to_string()]).await.unwrap();
    }
    let mut found = Vec::new();
    for _ in 0..3 {
        found.extend(numbers(&claim(&fixture.root, 50, 0).await));
    }
    assert_eq!(found, (12_001..=12_050).collect::<Vec<_>>(), "within three claims");
    assert_eq!(fixture.count(PARKED).await, 6_000);
    assert_eq!(
        fixture.count("m10_recovery.outbox where retry_count not in (0, 9)").await,
        0,
        "no failure is counted"
    );
}

#[tokio::test]
async fn parked_events_follow_once_their_head_is_processed_by_any_worker() {
    let fixture = Fixture::new().await;
    publish_blocked(&fixture.root, 2, 4).await;
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [0; 0]);
    assert_eq!(fixture.count(PARKED).await, 6);
    let due = "update m10_recovery.outbox set process_after = now() where id <= 2";
    fixture.root.batch_execute(due).await.unwrap();
    let heads = claim(&fixture.root, 10, 10).await;
    assert_eq!(numbers(&heads), [1, 2], "heads that have failed go alone");
    end(&fixture.root, &heads, 2, FAILED).await;
    assert_eq!(fixture.count(PARKED).await, 6, "a failure puts nothing back");
    // The function of the contract puts back what is behind, too.
    end(&fixture.root, &heads, 1, Outcome::Delivered).await;
    assert_eq!(fixture.count(PARKED).await, 5, "the next of this aggregate is back");
    let run = claim(&fixture.root, 10, 10).await;
    assert_eq!(numbers(&run), [3, 5, 7]);
    for number in numbers(&run) {
        end(&fixture.root, &run, number, Outcome::Delivered).await;
    }
    assert_eq!(fixture.count(PARKED).await, 3);
}

#[tokio::test]
async fn a_claim_of_the_contract_takes_parked_events() {
    let fixture = Fixture::new().await;
    publish_blocked(&fixture.root, 1, 3).await;
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [0; 0]);
    assert_eq!(fixture.count(PARKED).await, 2);
    assert_eq!(fixture.claim().await.events.iter().map(|event| event.id.0).collect::<Vec<_>>(), [2, 3]);
}

#[tokio::test]
async fn a_parked_event_is_put_back_when_both_in_front_of_it_are_completed_at_once() {
    let fixture = Fixture::new().await;
    publish_blocked(&fixture.root, 1, 3).await;
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [0; 0]);
    // Workers without order claim the first two.
    fixture
        .root
        .batch_execute("update m10_recovery.outbox set process_after = now() - interval '1 day' where id = 1")
        .await
        .unwrap();
    fixture
        .root
        .batch_execute("update m10_recovery.outbox set claimed_at = now(), claimed_by = 'w' || id where id <= 2")
        .await
        .unwrap();
    let (one, other) = (fixture.database.connect().await.unwrap(), fixture.database.connect().await.unwrap());
    for (client, number) in [(&one, 1), (&other, 2)] {
        let complete = format!("begin; select m10_recovery.complete_outbox_event({number}, 'w{number}', true)");
        client.batch_execute(&complete).await.unwrap();
    }
    one.batch_execute("commit").await.unwrap();
    other.batch_execute("commit").await.unwrap();
    assert_eq!(fixture.count(PARKED).await, 0);
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [3]);
}

#[tokio::test]
async fn an_event_that_stays_parked_because_a_claim_rolled_back_is_put_back_by_a_later_claim() {
    let fixture = Fixture::new().await;
    publish_blocked(&fixture.root, 1, 3).await;
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [0; 0]);
    assert_eq!(fixture.count(PARKED).await, 2);
    // A worker without order holds the parked events while the one in front of them is completed.
    let other = fixture.database.connect().await.unwrap();
    let hold = "begin; select m10_recovery.claim_outbox_events('without order', 10)";
    other.batch_execute(hold).await.unwrap();
    let due = "update m10_recovery.outbox set process_after = now() where id = 1";
    fixture.root.batch_execute(due).await.unwrap();
    let head = claim(&fixture.root, 10, 10).await;
    assert_eq!(numbers(&head), [1]);
    end(&fixture.root, &head, 1, Outcome::Delivered).await;
    other.batch_execute("rollback").await.unwrap();
    assert_eq!(fixture.count(PARKED).await, 2, "no completion waits for a claim");
    // A session checks once per second; this one has not yet.
    let executor = fixture.login("symphony_executor").await;
    assert_eq!(numbers(&claim(&executor, 10, 10).await), [2, 3]);
    assert_eq!(fixture.count(PARKED).await, 0);
}

#[tokio::test]
async fn a_check_of_parked_events_is_bounded_and_the_next_continues_behind_it() {
    let fixture = Fixture::new().await;
    // 'a…' comes before 'blocked-…': the first check sees nothing else.
    let backlog =
        "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, process_after)
         select 'order', 'a' || a, 'Changed', '{}', case when e = 1 then now() + interval '1 hour' else to_timestamp(0) end
         from generate_series(1, 2) e, generate_series(1, 1000) a";
    fixture.root.batch_execute(backlog).await.unwrap();
    let stranded =
        "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, process_after)
                    select 'order', 'blocked', 'Changed', '{}', to_timestamp(0)";
    fixture.root.batch_execute(stranded).await.unwrap();
    let unpark = async || {
        let unparked = fixture.root.query_one("select symphony.unpark_stranded_events()", &[]).await.unwrap();
        // As if a second had passed.
        let later = "select set_config('symphony.checked_parked_events',
                                       jsonb_set(current_setting('symphony.checked_parked_events')::jsonb, '{0}', '0')::text, false)";
        fixture.root.batch_execute(later).await.unwrap();
        unparked.get::<_, i32>(0)
    };
    assert_eq!([unpark().await, unpark().await, unpark().await, unpark().await], [0, 1, 0, 0]);
    assert_eq!(fixture.count(PARKED).await, 1_000);
}

#[tokio::test]
async fn nothing_is_parked_behind_a_head_that_another_session_has_locked() {
    let fixture = Fixture::new().await;
    publish_blocked(&fixture.root, 2, 2).await;
    let other = fixture.database.connect().await.unwrap();
    other.batch_execute("begin; select from m10_recovery.outbox where id = 1 for update").await.unwrap();
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [0; 0]);
    let parked = "select array_agg(id) from m10_recovery.outbox_unprocessed where is_parked";
    assert_eq!(fixture.root.query_one(parked, &[]).await.unwrap().get::<_, Vec<i64>>(0), [4]);
}

#[tokio::test]
async fn events_behind_a_retry_within_a_second_are_not_parked_unless_they_hide_others() {
    let fixture = Fixture::new().await;
    publish(&fixture.root, "aa").await;
    let held = claim(&fixture.root, 1, 0).await;
    end(&fixture.root, &held, 1, FAILED).await;
    assert_eq!(numbers(&claim(&fixture.root, 10, 10).await), [0; 0]);
    assert_eq!(fixture.count(PARKED).await, 0);
}

#[tokio::test]
async fn hot_aggregates_among_many_blocked_ones_hide_no_other_for_ever() {
    let fixture = Fixture::new().await;
    publish_blocked(&fixture.root, 6_000, 1).await;
    let hot = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload)
               select 'order', 'hot', 'Changed', '{}' from generate_series(1, 500)";
    fixture.root.batch_execute(hot).await.unwrap();
    assert_eq!(numbers(&claim(&fixture.root, 1, 0).await), [6_001], "the head of the hot aggregate is held");
    publish(&fixture.root, "z").await;
    let mut found = Vec::new();
    for _ in 0..3 {
        found.extend(numbers(&claim(&fixture.root, 10, 10).await));
    }
    assert_eq!(found, [6_501]);
}

#[tokio::test]
async fn a_number_of_followers_out_of_range_is_refused() {
    let fixture = Fixture::new().await;
    for wrong in ["-1", "10000", "null"] {
        let call = format!("select symphony.claim_events_in_order('p', 1, {wrong})");
        let claim = fixture.root.query(&call, &[]).await;
        assert_eq!(claim.unwrap_err().code().unwrap().code(), "P7005", "{wrong}");
    }
}
