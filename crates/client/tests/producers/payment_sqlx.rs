//! What a producer over sqlx may rely on: the same as over tokio-postgres.

use sqlx::{Connection, PgConnection};
use symphony_client::error::{CancelError, DatabaseError, EnqueueError};
use symphony_client::payment::{self, PaymentState};

use crate::fixture::{Fixture, PAYMENTS, changed, instruction};

#[tokio::test]
async fn an_instruction_is_committed_with_its_business_row() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;

    let mut transaction = connection.begin().await.unwrap();
    sqlx::query("insert into orders values ('order-1')").execute(&mut *transaction).await.unwrap();
    let enqueued = payment::sqlx::enqueue(&mut transaction, &instruction(1)).await.unwrap();
    assert_eq!(fixture.count(PAYMENTS).await, 0, "not visible before the commit");
    transaction.commit().await.unwrap();

    assert_eq!((enqueued.sequence_id, enqueued.replayed), (1, false));
    assert_eq!((fixture.count("orders").await, fixture.count(PAYMENTS).await), (1, 1));
}

#[tokio::test]
async fn an_instruction_is_rolled_back_with_its_business_row() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;

    let mut transaction = connection.begin().await.unwrap();
    sqlx::query("insert into orders values ('order-1')").execute(&mut *transaction).await.unwrap();
    payment::sqlx::enqueue(&mut transaction, &instruction(1)).await.unwrap();
    transaction.rollback().await.unwrap();

    assert_eq!((fixture.count("orders").await, fixture.count(PAYMENTS).await), (0, 0));
}

#[tokio::test]
async fn both_drivers_give_the_same_answers() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;
    let time = jiff::Timestamp::from_second(4_000_000_000).unwrap();
    let batch = [instruction(3), instruction(1), instruction(2), instruction(1)];

    let far = payment::sqlx::enqueue(&mut connection, &instruction(4).not_before(time)).await.unwrap_err();
    assert!(far.to_string().contains("not 2096-10-02"), "{far}");
    let first = payment::sqlx::enqueue_batch(&mut connection, &batch).await.unwrap();
    assert_eq!(first.iter().map(|a| a.sequence_id).collect::<Vec<_>>(), [1, 2, 3, 2]);
    assert_eq!(first.iter().map(|a| a.replayed).collect::<Vec<_>>(), [false, false, false, true]);

    let again = payment::sqlx::enqueue_batch(&mut connection, &batch).await.unwrap();
    assert_eq!(again, payment::tokio_postgres::enqueue_batch(&fixture.root, &batch).await.unwrap());
    for (instruction, known) in batch.iter().zip(&again) {
        assert_eq!(payment::sqlx::enqueue(&mut connection, instruction).await.unwrap(), *known);
    }
}

#[tokio::test]
async fn a_schedule_reaches_the_database_to_the_microsecond() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;
    let time = jiff::Timestamp::from_microsecond(jiff::Timestamp::now().as_microsecond() + 3_600_000_001).unwrap();
    payment::sqlx::enqueue(&mut connection, &instruction(1).not_before(time)).await.unwrap();
    let batch = [instruction(2).not_before(time), instruction(3)];
    payment::sqlx::enqueue_batch(&mut connection, &batch).await.unwrap();
    let rows = "select not_before from symphony.payment_outbox_pending order by sequence_id";
    let times: Vec<Option<jiff::Timestamp>> =
        fixture.root.query(rows, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(times, [Some(time), Some(time), None]);
}

#[tokio::test]
async fn a_traceparent_is_kept_beside_what_its_transaction_enqueues() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;
    let traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    let mut transaction = connection.begin().await.unwrap();
    payment::sqlx::set_traceparent(&mut transaction, traceparent).await.unwrap();
    payment::sqlx::enqueue(&mut transaction, &instruction(1)).await.unwrap();
    transaction.commit().await.unwrap();

    assert_eq!(fixture.count(&format!("{PAYMENTS} where traceparent = '{traceparent}'")).await, 1);
}

#[tokio::test]
async fn a_payment_is_cancelled_and_its_outcome_is_the_same_over_both_drivers() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;
    let enqueued = payment::sqlx::enqueue(&mut connection, &instruction(1)).await.unwrap();
    for state in [PaymentState::Pending, PaymentState::Failed] {
        let outcome = payment::sqlx::outcome(&mut connection, "instruction-1", "key-1").await.unwrap().unwrap();
        let other = payment::tokio_postgres::outcome(&fixture.root, "instruction-1", "key-1").await.unwrap();
        assert_eq!((outcome.state, Some(&outcome)), (state, other.as_ref()));
        let cancelled = payment::sqlx::cancel(&mut connection, "instruction-1", "key-1", "shop", "no stock").await;
        match (state, cancelled) {
            (PaymentState::Pending, Ok(cancelled)) => assert_eq!(cancelled.outbox_id, enqueued.outbox_id),
            (_, Err(CancelError::Ended(_))) => {}
            (_, other) => panic!("{other:?}"),
        }
    }
    assert!(payment::sqlx::outcome(&mut connection, "instruction-1", "key-2").await.unwrap().is_none());
}

#[tokio::test]
async fn refusals_are_sorted_and_keep_the_words_of_the_database() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;
    let known = payment::sqlx::enqueue(&mut connection, &instruction(1)).await.unwrap();

    let other = changed(instruction(1), |it| it.payload = instruction(2).payload);
    let error = payment::sqlx::enqueue(&mut connection, &other).await.unwrap_err();
    let EnqueueError::IdempotencyConflict(report) = &error else { panic!("{error:?}") };
    assert_eq!(report.sqlstate(), Some("P7004"));
    assert_eq!(report.detail(), Some(format!("It belongs to outbox {}.", known.outbox_id).as_str()));
    assert!(report.hint().is_some());
    assert!(std::error::Error::source(&error).unwrap().is::<sqlx::Error>());

    let blank = changed(instruction(2), |it| it.participant_id = " ".to_owned());
    let error = payment::sqlx::enqueue(&mut connection, &blank).await.unwrap_err();
    assert!(matches!(error, EnqueueError::InvalidArgument(_)), "{error:?}");

    let typo = changed(instruction(2), |it| it.rail_type = "spea".to_owned());
    let error = payment::sqlx::enqueue(&mut connection, &typo).await.unwrap_err();
    assert!(matches!(error, EnqueueError::UnknownRail(_)), "{error:?}");
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_one_it_lacks() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_executor").await;
    let error = payment::sqlx::enqueue(&mut connection, &instruction(1)).await.unwrap_err();
    assert!(
        matches!(error, EnqueueError::Database(DatabaseError::MissingRole { role: "symphony_ingest", .. })),
        "{error:?}"
    );
}

#[tokio::test]
async fn a_connection_that_the_server_ended_is_lost() {
    let fixture = Fixture::new().await;
    let mut connection = fixture.login_sqlx("symphony_ingest").await;
    let pid: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(&mut connection).await.unwrap();
    fixture.root.execute("select pg_terminate_backend($1, 10000)", &[&pid]).await.unwrap();
    let error = payment::sqlx::enqueue(&mut connection, &instruction(1)).await.unwrap_err();
    assert!(matches!(error, EnqueueError::Database(DatabaseError::ConnectionLost { .. })), "{error:?}");
}

#[tokio::test]
async fn no_call_leaves_a_statement_on_the_connection() {
    let fixture = Fixture::new().await;
    let mut connection = PgConnection::connect(&fixture.database.url()).await.unwrap();
    payment::sqlx::set_traceparent(&mut connection, "").await.unwrap();
    payment::sqlx::enqueue(&mut connection, &instruction(1)).await.unwrap();
    payment::sqlx::enqueue_batch(&mut connection, &[instruction(1), instruction(2)]).await.unwrap();
    let left = sqlx::raw_sql("select name from pg_prepared_statements").fetch_all(&mut connection).await.unwrap();
    assert!(left.is_empty(), "{} statements", left.len());
}
