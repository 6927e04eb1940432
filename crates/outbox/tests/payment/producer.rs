//! What a producer over tokio-postgres may rely on.

use serde_json::json;
use symphony_outbox::error::EnqueueError;
use symphony_outbox::payment::{Instruction, Payload, producer};

use crate::stage::{Stage, instruction};

const PENDING: &str = "symphony.payment_outbox_pending";

#[tokio::test]
async fn an_instruction_is_committed_with_its_business_row() {
    let stage = Stage::set().await;
    let mut client = stage.login("symphony_ingest").await;

    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into orders values ('order-1')", &[]).await.unwrap();
    let enqueued = producer::enqueue(&transaction, &instruction(1)).await.unwrap();
    assert_eq!(stage.count(PENDING).await, 0, "nobody sees it before the commit");
    transaction.commit().await.unwrap();

    assert_eq!((enqueued.sequence_id, enqueued.replayed), (1, false));
    assert_eq!((stage.count("orders").await, stage.count(PENDING).await), (1, 1));
}

#[tokio::test]
async fn an_instruction_is_rolled_back_with_its_business_row_and_gives_its_number_back() {
    let stage = Stage::set().await;
    let mut client = stage.login("symphony_ingest").await;

    let transaction = client.transaction().await.unwrap();
    transaction.execute("insert into orders values ('order-1')", &[]).await.unwrap();
    producer::enqueue(&transaction, &instruction(1)).await.unwrap();
    transaction.rollback().await.unwrap();

    assert_eq!((stage.count("orders").await, stage.count(PENDING).await), (0, 0));
    assert_eq!(producer::enqueue(&client, &instruction(2)).await.unwrap().sequence_id, 1);
}

#[tokio::test]
async fn the_same_key_is_answered_with_the_same_outbox() {
    let stage = Stage::set().await;
    let first = stage.enqueue(1).await;
    let again = stage.enqueue(1).await;
    assert!(again.replayed);
    assert_eq!(
        (again.outbox_id, again.sequence_id, again.created_at),
        (first.outbox_id, first.sequence_id, first.created_at)
    );
    assert_eq!(stage.count(PENDING).await, 1);
}

#[tokio::test]
async fn a_batch_answers_in_order_and_replays_what_is_known() {
    let stage = Stage::set().await;
    let known = stage.enqueue(2).await;
    let client = stage.login("symphony_ingest").await;

    let batch = [instruction(3), instruction(2), instruction(1), instruction(3)];
    let answers = producer::enqueue_batch(&client, &batch).await.unwrap();

    assert_eq!(answers.iter().map(|a| a.sequence_id).collect::<Vec<_>>(), [2, 1, 3, 2]);
    assert_eq!(answers.iter().map(|a| a.replayed).collect::<Vec<_>>(), [false, true, false, true]);
    assert_eq!(answers[1].outbox_id, known.outbox_id);
    assert_eq!(answers[3].outbox_id, answers[0].outbox_id);
}

#[tokio::test]
async fn a_batch_with_one_bad_instruction_enqueues_nothing() {
    let stage = Stage::set().await;
    let batch = [instruction(1), Instruction { rail_type: "spea".to_owned(), ..instruction(2) }];
    let error = producer::enqueue_batch(&stage.root, &batch).await.unwrap_err();
    assert!(matches!(error, EnqueueError::UnknownRail(_)), "{error:?}");
    assert_eq!(stage.count(PENDING).await, 0);
}

#[tokio::test]
async fn an_amount_keeps_every_digit_on_its_way_to_the_worker() {
    let stage = Stage::set().await;
    let payload: Payload = serde_json::from_str(r#"{"amount": 100000000000000000.010}"#).unwrap();
    producer::enqueue(&stage.root, &Instruction { payload, ..instruction(1) }).await.unwrap();
    assert_eq!(stage.claim().await[0].payload.as_json(), r#"{"amount": 100000000000000000.010}"#);
}

#[tokio::test]
async fn a_traceparent_is_kept_beside_what_its_transaction_enqueues() {
    let stage = Stage::set().await;
    let mut client = stage.login("symphony_ingest").await;
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    let transaction = client.transaction().await.unwrap();
    producer::set_traceparent(&transaction, traceparent).await.unwrap();
    producer::enqueue(&transaction, &instruction(1)).await.unwrap();
    transaction.commit().await.unwrap();
    producer::enqueue(&client, &instruction(2)).await.unwrap();

    let sql = "select traceparent from symphony.payment_outbox_pending order by sequence_id";
    let kept: Vec<Option<String>> =
        stage.root.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(kept, [Some(traceparent.to_owned()), None]);
}

#[tokio::test]
async fn what_is_not_an_object_is_no_payload() {
    let stage = Stage::set().await;
    let payload = json!([1, 2, 3]).into();
    let error = producer::enqueue(&stage.root, &Instruction { payload, ..instruction(1) }).await.unwrap_err();
    assert_eq!(error.to_string(), "p_payload must be a JSON object, not a JSON array");
}
