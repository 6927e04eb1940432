//! The examples run on a real PostgreSQL, and README.md shows the first of them.

use symphony_testkit::wait::{DEFAULT_TIMEOUT, until};

use crate::{database, ends_as, enqueue};

#[expect(dead_code, reason = "its main runs until a signal")]
#[path = "../../examples/own_rail.rs"]
mod own_rail;
#[expect(dead_code, reason = "its main runs until a signal")]
#[path = "../../examples/own_sink.rs"]
mod own_sink;

#[tokio::test]
async fn the_example_of_a_rail_executes_payments_and_refuses_an_invalid_one() {
    let (database, owner) = database("book").await;
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let relayer = own_rail::start(&url).await.unwrap();
    enqueue(&owner, "book", "key-1", r#"{"amount": "10.00"}"#).await;
    enqueue(&owner, "book", "key-2", r#"{"amount": 10.00}"#).await;
    ends_as(&owner, "key-1", "DISPATCHED").await;
    ends_as(&owner, "key-2", "FAILED").await;
    relayer.request_stop();
    let summaries = relayer.ended().await;
    assert_eq!((summaries.len(), summaries[0].summary.recorded, summaries[0].summary.left_behind), (1, 2, 0));
    drop(owner);
    database.close().await.unwrap();
}

#[tokio::test]
async fn the_example_of_a_sink_publishes_events() {
    let (database, owner) = database("book").await;
    let url = database.url_as_login(&["symphony_executor"]).await.unwrap();
    let relayer = own_sink::start(&url).await.unwrap();
    owner.execute("select m10_recovery.publish_outbox('order', 'o-1', 'Paid', '{}')", &[]).await.unwrap();
    let published = async || {
        let count = "select count(*) from m10_recovery.outbox where processed_at is not null";
        owner.query_one(count, &[]).await.unwrap().get::<_, i64>(0) == 1
    };
    until("the event is published", DEFAULT_TIMEOUT, published).await.unwrap();
    relayer.request_stop();
    assert_eq!(relayer.ended().await[0].summary.recorded, 1);
    drop(owner);
    database.close().await.unwrap();
}

#[test]
fn the_readme_shows_the_example() {
    let example = include_str!("../../examples/own_rail.rs");
    // Without its first line, which says what the text around it says.
    let shown = example.split_once("\n\n").unwrap().1;
    assert!(include_str!("../../README.md").contains(shown), "README.md does not hold examples/own_rail.rs");
}
