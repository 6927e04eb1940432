//! What a producer over sqlx may rely on: the same as over tokio-postgres.

use sqlx::{Connection, PgConnection};
use symphony_outbox::error::{EnqueueError, Fault};
use symphony_outbox::payment::{Instruction, producer, producer_sqlx};

use crate::stage::{Stage, instruction};

const PENDING: &str = "symphony.payment_outbox_pending";

async fn login(stage: &Stage, role: &str) -> PgConnection {
    PgConnection::connect(&stage.database.url_as_login(&[role]).await.unwrap()).await.unwrap()
}

#[tokio::test]
async fn an_instruction_is_committed_with_its_business_row() {
    let stage = Stage::set().await;
    let mut connection = login(&stage, "symphony_ingest").await;

    let mut transaction = connection.begin().await.unwrap();
    sqlx::query("insert into orders values ('order-1')").execute(&mut *transaction).await.unwrap();
    let enqueued = producer_sqlx::enqueue(&mut transaction, &instruction(1)).await.unwrap();
    assert_eq!(stage.count(PENDING).await, 0, "nobody sees it before the commit");
    transaction.commit().await.unwrap();

    assert_eq!((enqueued.sequence_id, enqueued.replayed), (1, false));
    assert_eq!((stage.count("orders").await, stage.count(PENDING).await), (1, 1));
}

#[tokio::test]
async fn an_instruction_is_rolled_back_with_its_business_row() {
    let stage = Stage::set().await;
    let mut connection = login(&stage, "symphony_ingest").await;

    let mut transaction = connection.begin().await.unwrap();
    sqlx::query("insert into orders values ('order-1')").execute(&mut *transaction).await.unwrap();
    producer_sqlx::enqueue(&mut transaction, &instruction(1)).await.unwrap();
    transaction.rollback().await.unwrap();

    assert_eq!((stage.count("orders").await, stage.count(PENDING).await), (0, 0));
}

#[tokio::test]
async fn both_drivers_give_the_same_answers() {
    let stage = Stage::set().await;
    let mut connection = login(&stage, "symphony_ingest").await;
    let batch = [instruction(3), instruction(1), instruction(2), instruction(1)];

    let first = producer_sqlx::enqueue_batch(&mut connection, &batch).await.unwrap();
    assert_eq!(first.iter().map(|a| a.sequence_id).collect::<Vec<_>>(), [1, 2, 3, 2]);
    assert_eq!(first.iter().map(|a| a.replayed).collect::<Vec<_>>(), [false, false, false, true]);

    let again = producer_sqlx::enqueue_batch(&mut connection, &batch).await.unwrap();
    assert_eq!(again, producer::enqueue_batch(&stage.root, &batch).await.unwrap());
    for (instruction, known) in batch.iter().zip(&again) {
        assert_eq!(producer_sqlx::enqueue(&mut connection, instruction).await.unwrap(), *known);
    }
}

#[tokio::test]
async fn a_traceparent_is_kept_beside_what_its_transaction_enqueues() {
    let stage = Stage::set().await;
    let mut connection = login(&stage, "symphony_ingest").await;
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    let mut transaction = connection.begin().await.unwrap();
    producer_sqlx::set_traceparent(&mut transaction, traceparent).await.unwrap();
    producer_sqlx::enqueue(&mut transaction, &instruction(1)).await.unwrap();
    transaction.commit().await.unwrap();

    assert_eq!(stage.count(&format!("{PENDING} where traceparent = '{traceparent}'")).await, 1);
}

#[tokio::test]
async fn refusals_are_sorted_and_keep_the_words_of_the_database() {
    let stage = Stage::set().await;
    let mut connection = login(&stage, "symphony_ingest").await;
    let known = producer_sqlx::enqueue(&mut connection, &instruction(1)).await.unwrap();

    let other = Instruction { payload: instruction(2).payload, ..instruction(1) };
    let error = producer_sqlx::enqueue(&mut connection, &other).await.unwrap_err();
    let EnqueueError::IdempotencyConflict(report) = &error else { panic!("{error:?}") };
    assert_eq!(report.sqlstate(), Some("P7004"));
    assert_eq!(report.detail(), Some(format!("It belongs to outbox {}.", known.outbox_id).as_str()));
    assert!(report.hint().is_some());
    assert!(std::error::Error::source(&error).unwrap().is::<sqlx::Error>());

    let blank = Instruction { participant_id: " ".to_owned(), ..instruction(2) };
    let error = producer_sqlx::enqueue(&mut connection, &blank).await.unwrap_err();
    assert!(matches!(error, EnqueueError::InvalidArgument(_)), "{error:?}");

    let typo = Instruction { rail_type: "spea".to_owned(), ..instruction(2) };
    let error = producer_sqlx::enqueue(&mut connection, &typo).await.unwrap_err();
    assert!(matches!(error, EnqueueError::UnknownRail(_)), "{error:?}");
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let stage = Stage::set().await;
    let mut connection = login(&stage, "symphony_executor").await;
    let error = producer_sqlx::enqueue(&mut connection, &instruction(1)).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Fault(Fault::MissingRole { role: "symphony_ingest", .. })), "{error:?}");
}

#[tokio::test]
async fn a_connection_that_the_server_ended_is_lost() {
    let stage = Stage::set().await;
    let mut connection = login(&stage, "symphony_ingest").await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
    stage.root.execute("select pg_terminate_backend($1, 10000)", &[&pid]).await.unwrap();
    let error = producer_sqlx::enqueue(&mut connection, &instruction(1)).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Fault(Fault::ConnectionLost { .. })), "{error:?}");
}
