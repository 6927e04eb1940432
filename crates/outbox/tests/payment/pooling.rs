//! A pooler in transaction mode gives each statement whatever server connection is free. So no call may leave
//! anything behind that a later one counts on.

use symphony_outbox::BatchSize;
use symphony_outbox::payment::operator::{pause, redrive, resolve, resume, set_rail};
use symphony_outbox::payment::worker::{complete, complete_batch, release, renew, repair};
use symphony_outbox::payment::{RailPolicy, Resolution, producer, reading};
use tokio_postgres::SimpleQueryMessage;

use crate::stage::{LEASE, RAIL, Stage, WARRANT, completion, dispatched, failed, instruction, retryable, worker};

const PREPARED: &str = "select statement from pg_prepared_statements";

#[tokio::test]
async fn no_call_over_tokio_postgres_leaves_a_statement_on_the_connection() {
    let stage = Stage::set().await;
    let client = &stage.root;
    for number in 1..=4 {
        stage.enqueue(number).await;
    }
    producer::enqueue_batch(client, &[instruction(5)]).await.unwrap();
    producer::set_traceparent(client, "").await.unwrap();

    let claimed = stage.claim().await;
    renew(client, &worker(), &[claimed[0].lease()], LEASE).await.unwrap();
    release(client, &worker(), &[claimed[0].lease()], Some(LEASE)).await.unwrap();
    complete(client, &worker(), &completion(&claimed[1], failed("NO_ACCOUNT"))).await.unwrap();
    let batch = [completion(&claimed[2], retryable(None)), completion(&claimed[3], dispatched())];
    complete_batch(client, &worker(), &batch).await.unwrap();
    stage.let_leases_expire().await;
    assert_eq!(repair(client, &worker(), BatchSize::MOST).await.unwrap().len(), 1);

    let failure = claimed[1].outbox_id;
    assert_eq!(reading::dead_letters(client, BatchSize::MOST).await.unwrap().len(), 1);
    resolve(client, failure, Resolution::NotPaid, WARRANT).await.unwrap();
    redrive(client, failure, WARRANT).await.unwrap();
    set_rail(client, RAIL, &RailPolicy::default(), WARRANT).await.unwrap();
    pause(client, RAIL, WARRANT).await.unwrap();
    resume(client, RAIL, WARRANT).await.unwrap();

    reading::status(client).await.unwrap();
    reading::rails(client).await.unwrap();
    reading::operations(client, failure).await.unwrap();
    reading::story(client, failure).await.unwrap();
    reading::story_of_instruction(client, "instruction-1").await.unwrap();
    reading::pending(client, claimed[2].outbox_id).await.unwrap().unwrap();

    let left = client.simple_query(PREPARED).await.unwrap();
    assert!(!left.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))), "{left:?}");
}

#[cfg(feature = "sqlx")]
#[tokio::test]
async fn no_call_over_sqlx_leaves_a_statement_on_the_connection() {
    use sqlx::{Connection, PgConnection};
    use symphony_outbox::payment::producer_sqlx;

    let stage = Stage::set().await;
    let mut connection = PgConnection::connect(&stage.database.url()).await.unwrap();
    producer_sqlx::set_traceparent(&mut connection, "").await.unwrap();
    producer_sqlx::enqueue(&mut connection, &instruction(1)).await.unwrap();
    producer_sqlx::enqueue_batch(&mut connection, &[instruction(1), instruction(2)]).await.unwrap();
    let left = sqlx::raw_sql(PREPARED).fetch_all(&mut connection).await.unwrap();
    assert!(left.is_empty(), "{} statements", left.len());
}
