//! What a publisher over tokio-postgres may rely on.

use serde_json::json;
use symphony_client::error::{DatabaseError, PublishError};
use symphony_client::event;

use crate::fixture::{EVENTS, Fixture, changed, event};

#[tokio::test]
async fn an_event_is_committed_or_rolled_back_with_its_business_row() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;

    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("insert into orders values ('order-1')").await.unwrap();
    event::tokio_postgres::publish(&transaction, &event(1)).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!((fixture.count("orders").await, fixture.count(EVENTS).await), (0, 0));

    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("insert into orders values ('order-1')").await.unwrap();
    let id = event::tokio_postgres::publish(&transaction, &event(1)).await.unwrap();
    assert_eq!(fixture.count(EVENTS).await, 0, "not visible before the commit");
    transaction.commit().await.unwrap();
    assert_eq!((fixture.count("orders").await, fixture.count(&format!("{EVENTS} where id = {id}")).await), (1, 1));
}

#[tokio::test]
async fn an_event_comes_out_as_it_went_in_with_every_digit() {
    let fixture = Fixture::new().await;
    let payload = serde_json::from_str(r#"[100000000000000000.010, null, "x"]"#).unwrap();
    event::tokio_postgres::publish(&fixture.root, &changed(event(1), |it| it.payload = payload)).await.unwrap();
    let stored = fixture.text("select payload::text from m10_recovery.outbox").await;
    assert_eq!(stored.replace(' ', ""), r#"[100000000000000000.010,null,"x"]"#);
    let kind = fixture.text("select concat(aggregate_type, ' ', event_type) from m10_recovery.outbox").await;
    assert_eq!(kind, "order OrderPlaced");
}

#[tokio::test]
async fn refusals_are_sorted_and_keep_the_words_of_the_database() {
    let fixture = Fixture::new().await;
    let client = fixture.login("symphony_ingest").await;
    for (refused, words) in [
        (changed(event(1), |it| it.aggregate_type = " ".to_owned()), "p_aggregate_type must not be blank"),
        (
            changed(event(1), |it| it.aggregate_id = "x".repeat(201)),
            "p_aggregate_id must have at most 200 characters",
        ),
        (changed(event(1), |it| it.event_type = String::new()), "p_event_type must not be blank"),
        (
            changed(event(1), |it| it.payload = json!("x".repeat(1 << 20)).into()),
            "p_payload must have at most 1048576 bytes",
        ),
    ] {
        let error = event::tokio_postgres::publish(&client, &refused).await.unwrap_err();
        let PublishError::InvalidArgument(report) = &error else { panic!("{error:?}") };
        assert_eq!(report.sqlstate(), Some("P7005"));
        assert!(report.message().contains(words), "{error}");
    }
    // PostgreSQL's own: jsonb cannot hold this character.
    let nul = changed(event(1), |it| it.payload = json!("\0").into());
    let error = event::tokio_postgres::publish(&client, &nul).await.unwrap_err();
    assert!(matches!(error, PublishError::InvalidArgument(_)), "{error:?}");
    assert_eq!(fixture.count(EVENTS).await, 0);
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let fixture = Fixture::new().await;
    let client = fixture.login("symphony_executor").await;
    let error = event::tokio_postgres::publish(&client, &event(1)).await.unwrap_err();
    assert!(
        matches!(error, PublishError::Database(DatabaseError::MissingRole { role: "symphony_ingest", .. })),
        "{error:?}"
    );
}
