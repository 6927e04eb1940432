//! A pooler in transaction mode gives each statement whatever server connection is free. So no call may leave
//! anything behind that a later one counts on.

use symphony_client::payment::tokio_postgres as producer;
use symphony_db::BatchSize;
use symphony_db::payment::operator::{pause, redrive, resolve, resume, set_rail};
use symphony_db::payment::worker::{complete, complete_batch, release, renew, repair};
use symphony_db::payment::{RailPolicy, Resolution, reader};
use tokio_postgres::SimpleQueryMessage;

use crate::fixture::{
    AUDIT, Fixture, LEASE, RAIL, completion, dispatched, failed, instruction, retryable, worker,
};

const PREPARED: &str = "select statement from pg_prepared_statements";

#[tokio::test]
async fn no_call_over_tokio_postgres_leaves_a_statement_on_the_connection() {
    let fixture = Fixture::new().await;
    let client = &fixture.root;
    for number in 1..=4 {
        fixture.enqueue(number).await;
    }
    producer::enqueue_batch(client, &[instruction(5)]).await.unwrap();
    producer::set_traceparent(client, "").await.unwrap();

    let claimed = fixture.claim().await;
    renew(client, &worker(), &[claimed[0].lease()], LEASE).await.unwrap();
    release(client, &worker(), &[claimed[0].lease()], Some(LEASE)).await.unwrap();
    complete(client, &worker(), &completion(&claimed[1], failed("NO_ACCOUNT"))).await.unwrap();
    let batch = [completion(&claimed[2], retryable(None)), completion(&claimed[3], dispatched())];
    complete_batch(client, &worker(), &batch).await.unwrap();
    fixture.let_leases_expire().await;
    assert_eq!(repair(client, &worker(), BatchSize::MAX).await.unwrap().len(), 1);

    let failure = claimed[1].outbox_id;
    assert_eq!(
        reader::dead_letters(client, &reader::DeadLetterFilter::default(), BatchSize::MAX).await.unwrap().len(),
        1
    );
    resolve(client, failure, Resolution::NotPaid, AUDIT).await.unwrap();
    redrive(client, failure, AUDIT).await.unwrap();
    set_rail(client, RAIL, &RailPolicy::default(), AUDIT).await.unwrap();
    pause(client, RAIL, AUDIT).await.unwrap();
    resume(client, RAIL, AUDIT).await.unwrap();

    reader::status(client).await.unwrap();
    reader::rails(client).await.unwrap();
    reader::operations(client, failure).await.unwrap();
    reader::timeline(client, failure).await.unwrap();
    reader::instruction_timeline(client, "instruction-1").await.unwrap();
    reader::pending(client, claimed[2].outbox_id).await.unwrap().unwrap();

    let left = client.simple_query(PREPARED).await.unwrap();
    assert!(!left.iter().any(|message| matches!(message, SimpleQueryMessage::Row(_))), "{left:?}");
}
