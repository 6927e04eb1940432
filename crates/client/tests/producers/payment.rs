//! What a producer over tokio-postgres may rely on.

use serde_json::json;
use symphony_client::Payload;
use symphony_client::error::EnqueueError;
use symphony_client::payment;

use crate::fixture::{Fixture, PAYMENTS, changed, instruction};

#[tokio::test]
async fn an_instruction_is_committed_with_its_business_row() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;

    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into orders values ('order-1')", &[]).await.unwrap();
    let enqueued = payment::tokio_postgres::enqueue(&transaction, &instruction(1)).await.unwrap();
    assert_eq!(fixture.count(PAYMENTS).await, 0, "not visible before the commit");
    transaction.commit().await.unwrap();

    assert_eq!((enqueued.sequence_id, enqueued.replayed), (1, false));
    assert_eq!((fixture.count("orders").await, fixture.count(PAYMENTS).await), (1, 1));
}

#[tokio::test]
async fn an_instruction_is_rolled_back_with_its_business_row_and_gives_its_number_back() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;

    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into orders values ('order-1')", &[]).await.unwrap();
    payment::tokio_postgres::enqueue(&transaction, &instruction(1)).await.unwrap();
    transaction.rollback().await.unwrap();

    assert_eq!((fixture.count("orders").await, fixture.count(PAYMENTS).await), (0, 0));
    assert_eq!(payment::tokio_postgres::enqueue(&client, &instruction(2)).await.unwrap().sequence_id, 1);
}

#[tokio::test]
async fn the_same_key_is_answered_with_the_same_outbox() {
    let fixture = Fixture::new().await;
    let first = fixture.enqueue(1).await;
    let again = fixture.enqueue(1).await;
    assert!(again.replayed);
    assert_eq!(
        (again.outbox_id, again.sequence_id, again.created_at),
        (first.outbox_id, first.sequence_id, first.created_at)
    );
    assert_eq!(fixture.count(PAYMENTS).await, 1);
}

#[tokio::test]
async fn a_batch_answers_in_order_and_replays_what_is_known() {
    let fixture = Fixture::new().await;
    let known = fixture.enqueue(2).await;
    let client = fixture.login("symphony_ingest").await;

    let batch = [instruction(3), instruction(2), instruction(1), instruction(3)];
    let answers = payment::tokio_postgres::enqueue_batch(&client, &batch).await.unwrap();

    assert_eq!(answers.iter().map(|a| a.sequence_id).collect::<Vec<_>>(), [2, 1, 3, 2]);
    assert_eq!(answers.iter().map(|a| a.replayed).collect::<Vec<_>>(), [false, true, false, true]);
    assert_eq!(answers[1].outbox_id, known.outbox_id);
    assert_eq!(answers[3].outbox_id, answers[0].outbox_id);
}

#[tokio::test]
async fn a_batch_with_one_bad_instruction_enqueues_nothing() {
    let fixture = Fixture::new().await;
    let batch = [instruction(1), changed(instruction(2), |it| it.rail_type = "spea".to_owned())];
    let error = payment::tokio_postgres::enqueue_batch(&fixture.root, &batch).await.unwrap_err();
    assert!(matches!(error, EnqueueError::UnknownRail(_)), "{error:?}");
    assert_eq!(fixture.count(PAYMENTS).await, 0);
}

#[tokio::test]
async fn an_amount_keeps_every_digit_on_its_way_to_the_worker() {
    let fixture = Fixture::new().await;
    let payload: Payload = serde_json::from_str(r#"{"amount": 100000000000000000.010}"#).unwrap();
    payment::tokio_postgres::enqueue(&fixture.root, &changed(instruction(1), |it| it.payload = payload))
        .await
        .unwrap();
    assert_eq!(
        fixture.text("select payload::text from symphony.payment_outbox_pending").await,
        r#"{"amount": 100000000000000000.010}"#
    );
}

#[tokio::test]
async fn a_traceparent_is_kept_beside_what_its_transaction_enqueues() {
    let fixture = Fixture::new().await;
    let mut client = fixture.login("symphony_ingest").await;
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    let transaction = client.transaction().await.unwrap();
    payment::tokio_postgres::set_traceparent(&transaction, traceparent).await.unwrap();
    payment::tokio_postgres::enqueue(&transaction, &instruction(1)).await.unwrap();
    transaction.commit().await.unwrap();
    payment::tokio_postgres::enqueue(&client, &instruction(2)).await.unwrap();

    let sql = "select traceparent from symphony.payment_outbox_pending order by sequence_id";
    let kept: Vec<Option<String>> =
        fixture.root.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(kept, [Some(traceparent.to_owned()), None]);
}

#[tokio::test]
async fn what_is_not_an_object_is_no_payload() {
    let fixture = Fixture::new().await;
    let payload = json!([1, 2, 3]).into();
    let error =
        payment::tokio_postgres::enqueue(&fixture.root, &changed(instruction(1), |it| it.payload = payload))
            .await
            .unwrap_err();
    assert_eq!(error.to_string(), "p_payload must be a JSON object, not a JSON array");
}
