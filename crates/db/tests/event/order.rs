//! Claims that keep the order of each aggregate.

use symphony_db::BatchSize;
use symphony_db::event::EventId;
use symphony_db::event::worker::{Claim, Outcome, any_behind, claim_in_order, complete};
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
async fn an_event_behind_another_is_reported_while_no_worker_holds_it() {
    let fixture = Fixture::new().await;
    publish(&fixture.root, "aab").await;
    let behind = async |number| any_behind(&fixture.root, &[EventId(number)]).await.unwrap();
    assert!(behind(1).await && !behind(2).await && !behind(3).await);
    assert!(any_behind(&fixture.root, &[EventId(3), EventId(1)]).await.unwrap());
    claim(&fixture.root, 10, 10).await;
    assert!(!behind(1).await);
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
