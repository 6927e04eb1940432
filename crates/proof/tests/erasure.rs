//! What remains of an erased payload in the files and the statistics of the server.
#![expect(clippy::unwrap_used, reason = "a test that cannot ask the database has failed")]

use symphony_testkit::test_database::{Database, Server};
use tokio_postgres::Client;

const LEDGER: &str = "symphony.payment_outbox_attempts_from_start";

/// 20 dispatched payments with small payloads, and 20 with payloads in the TOAST table.
async fn with_payments() -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    client
        .batch_execute(
            "select symphony.register_payment_rail('bank', '{}', 'operator', 'a test');
             select count(symphony.enqueue_payment_outbox('small' || i, 'p', 'k', 'bank', jsonb_build_object('iban', 'SECRET-' || i)))
             from generate_series(1, 20) i;
             select count(symphony.enqueue_payment_outbox('large' || i, 'p', 'k', 'bank', jsonb_build_object(
                      'iban', 'SECRET-' || i, 'more', (select string_agg(md5(random()::text || n || i), '') from generate_series(1, 300) n))))
             from generate_series(1, 20) i;
             select count(symphony.complete_outbox_attempt(c.outbox_id, c.lease_token, 'worker', 'DISPATCHED'))
             from symphony.claim_outbox_batch(40, 'worker', 60) c",
        )
        .await
        .unwrap();
    (database, client)
}

/// How often the files of the partition and of its TOAST table have the secret.
async fn in_files(client: &Client) -> (i64, i64) {
    client.batch_execute("checkpoint").await.unwrap();
    let read = format!(
        "select (select count(*) from regexp_matches(encode(pg_read_binary_file(pg_relation_filepath(c.oid)), 'escape'), 'SECRET-', 'g')),
                (select count(*) from regexp_matches(encode(pg_read_binary_file(pg_relation_filepath(c.reltoastrelid)), 'escape'), 'SECRET-', 'g'))
         from pg_class c where c.oid = '{LEDGER}'::regclass"
    );
    let row = client.query_one(&read, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn an_erased_payload_is_in_no_file_of_the_table_after_vacuum_full() {
    let (_database, client) = with_payments().await;
    assert_eq!(in_files(&client).await, (20, 20));
    client
        .batch_execute(
            "select count(symphony.erase_payment_payload(o.outbox_id, 'operator', 'a test')) from symphony.payment_outboxes o",
        )
        .await
        .unwrap();
    assert_eq!(in_files(&client).await, (20, 20), "dead rows keep it");
    client.batch_execute(&format!("vacuum {LEDGER}")).await.unwrap();
    let (small, large) = in_files(&client).await;
    println!("after VACUUM: {small} of 20 in freed space, {large} of 20 in that of the TOAST table");
    client.batch_execute(&format!("vacuum full {LEDGER}")).await.unwrap();
    assert_eq!(in_files(&client).await, (0, 0));
    let read =
        "select count(*) from symphony.payment_outbox_attempts where payload ? 'digest' and not payload ? 'iban'";
    assert_eq!(client.query_one(read, &[]).await.unwrap().get::<_, i64>(0), 40);
}

#[tokio::test]
async fn statistics_hold_no_payload() {
    let (_database, client) = with_payments().await;
    client
        .batch_execute("select symphony.enqueue_payment_outbox('next', 'p', 'k', 'bank', '{\"iban\": \"SECRET-0\"}'); analyze")
        .await
        .unwrap();
    // Each table with payloads, partitions among them, has statistics, but not of the payload.
    let tables = "select count(distinct s.tablename) from pg_stats s
                  where s.schemaname = 'symphony' and s.tablename ~ '^payment_outbox_(pending|attempts_from_start)$'";
    assert_eq!(client.query_one(tables, &[]).await.unwrap().get::<_, i64>(0), 2);
    let sampled = "select count(*) from pg_stats s
                   where s.schemaname = 'symphony' and (s.attname in ('payload', 'content_digest') or s.most_common_vals::text like '%SECRET-%' or s.histogram_bounds::text like '%SECRET-%')";
    assert_eq!(client.query_one(sampled, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_partition_that_is_added_later_keeps_no_statistics_of_payloads() {
    let (_database, client) = with_payments().await;
    client.batch_execute("select from symphony.extend_ledger_at(now() + interval '21 days', 512)").await.unwrap();
    let sampled = "select count(*) from symphony.payment_ledger_partitions() p
                   join pg_attribute a on a.attrelid = ('symphony.' || p.partition_name)::regclass and a.attname = 'payload'
                   where a.attstattarget is distinct from 0";
    assert_eq!(client.query_one(sampled, &[]).await.unwrap().get::<_, i64>(0), 0);
}
