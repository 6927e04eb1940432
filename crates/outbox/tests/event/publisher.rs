//! What a publisher over tokio-postgres may rely on.

use serde_json::json;
use symphony_outbox::error::Fault;
use symphony_outbox::error::event::PublishError;
use symphony_outbox::event::{Event, publisher};

use crate::stage::{OUTBOX, Stage, event};

#[tokio::test]
async fn an_event_is_committed_or_rolled_back_with_its_business_row() {
    let stage = Stage::set().await;
    let mut client = stage.login("symphony_ingest").await;

    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("insert into orders values ('order-1')").await.unwrap();
    publisher::publish(&transaction, &event(1)).await.unwrap();
    transaction.rollback().await.unwrap();
    assert_eq!((stage.count("orders").await, stage.count(OUTBOX).await), (0, 0));

    let transaction = client.transaction().await.unwrap();
    transaction.batch_execute("insert into orders values ('order-1')").await.unwrap();
    let id = publisher::publish(&transaction, &event(1)).await.unwrap();
    assert_eq!(stage.count(OUTBOX).await, 0, "nobody sees it before the commit");
    transaction.commit().await.unwrap();
    assert_eq!((stage.count("orders").await, stage.count(&format!("{OUTBOX} where id = {id}")).await), (1, 1));
}

#[tokio::test]
async fn an_event_comes_out_as_it_went_in_with_every_digit() {
    let stage = Stage::set().await;
    let payload = serde_json::from_str(r#"[100000000000000000.010, null, "x"]"#).unwrap();
    publisher::publish(&stage.root, &Event { payload, ..event(1) }).await.unwrap();
    let claimed = stage.claim().await.events.remove(0);
    assert_eq!(claimed.event.payload.as_json().replace(' ', ""), r#"[100000000000000000.010,null,"x"]"#);
    assert_eq!(
        (claimed.event.aggregate_type.as_str(), claimed.event.event_type.as_str()),
        ("order", "OrderPlaced")
    );
}

#[tokio::test]
async fn refusals_are_sorted_and_keep_the_words_of_the_database() {
    let stage = Stage::set().await;
    let client = stage.login("symphony_ingest").await;
    for (refused, words) in [
        (Event { aggregate_type: " ".to_owned(), ..event(1) }, "p_aggregate_type must not be blank"),
        (Event { aggregate_id: "x".repeat(201), ..event(1) }, "p_aggregate_id must have at most 200 characters"),
        (Event { event_type: String::new(), ..event(1) }, "p_event_type must not be blank"),
        (
            Event { payload: json!("x".repeat(1 << 20)).into(), ..event(1) },
            "p_payload must have at most 1048576 bytes",
        ),
    ] {
        let error = publisher::publish(&client, &refused).await.unwrap_err();
        let PublishError::InvalidArgument(report) = &error else { panic!("{error:?}") };
        assert_eq!(report.sqlstate(), Some("P7005"));
        assert!(report.message().contains(words), "{error}");
    }
    // PostgreSQL's own: jsonb cannot hold this character.
    let nul = Event { payload: json!("\0").into(), ..event(1) };
    let error = publisher::publish(&client, &nul).await.unwrap_err();
    assert!(matches!(error, PublishError::InvalidArgument(_)), "{error:?}");
    assert_eq!(stage.count(OUTBOX).await, 0);
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let stage = Stage::set().await;
    let client = stage.login("symphony_executor").await;
    let error = publisher::publish(&client, &event(1)).await.unwrap_err();
    assert!(matches!(error, PublishError::Fault(Fault::MissingRole { role: "symphony_ingest", .. })), "{error:?}");
}
