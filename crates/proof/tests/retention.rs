//! Retention: what PostgreSQL removes at its end, what it refuses to remove, and that each removal is recorded.
#![expect(clippy::unwrap_used, reason = "a test that cannot ask the database has failed")]

use symphony_testkit::{
    bulk_rows, ledger_partitions,
    test_database::{Database, Server},
};
use tokio_postgres::Client;

async fn database() -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    bulk_rows::rails(&client).await.unwrap();
    (database, client)
}

async fn number(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap().get(0)
}

async fn refused(client: &Client, statement: &str) -> String {
    let error = client.batch_execute(statement).await.unwrap_err();
    error.code().unwrap().code().to_owned()
}

/// Keys of 40 days ago: one of an ended outbox, one of a pending outbox, one without rows; and one without rows of today.
const KEYS: &str = "
    insert into symphony.payment_outbox_pending
      (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, created_at)
    values (symphony.uuidv7_lower_bound(now() - interval '40 days'), 'pending', 'p', 1, 'pending', 'plain', '{}', now() - interval '40 days');
    insert into symphony.payment_outbox_attempts
      (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, claimed_at, worker_id, created_at)
    values (symphony.uuidv7_lower_bound(now() - interval '41 days'), 'ended', 'p', 2, 'ended', 'plain', '{}', 1, 'DISPATCHED', now(), 'w', now());
    insert into symphony.payment_outbox_keys (idempotency_key, instruction_id, outbox_id, content_digest, created_at)
    select idempotency_key, instruction_id, outbox_id, sha256('x'), now() - interval '40 days' from symphony.payment_outbox_pending
    union all
    select idempotency_key, instruction_id, outbox_id, sha256('x'), now() - interval '40 days' from symphony.payment_outbox_attempts
    union all
    select 'gone', 'gone', symphony.uuidv7_lower_bound(now() - interval '42 days'), sha256('x'), now() - interval '40 days'
    union all
    -- Redriven today: its outbox is new, though the key is old.
    select 'redriven', 'redriven', symphony.uuidv7(), sha256('x'), now() - interval '40 days'
    union all
    select 'fresh', 'fresh', symphony.uuidv7_lower_bound(now() - interval '42 days'), sha256('x'), now()";

#[tokio::test]
async fn a_key_is_removed_past_its_retention_when_its_outbox_has_no_row_and_never_before() {
    let (_database, client) = database().await;
    client.batch_execute(KEYS).await.unwrap();
    let delete = "delete from symphony.payment_outbox_keys where instruction_id = ";
    let remove = "select removed from symphony.remove_expired_keys(100)";
    assert_eq!(number(&client, remove).await, 0, "by default a key is kept for ever");
    for name in ["gone", "ended", "pending", "redriven", "fresh"] {
        assert_eq!(refused(&client, &format!("{delete}'{name}'")).await, "P0001", "{name}, without a retention");
    }
    client
        .batch_execute(
            "select symphony.set_retention('payment_ledger', 30, 'ana', 'a test');
             select symphony.set_retention('payment_keys', 30, 'ana', 'a test')",
        )
        .await
        .unwrap();
    for mode in ["origin", "replica"] {
        client.batch_execute(&format!("set session_replication_role = {mode}")).await.unwrap();
        for name in ["ended", "pending", "redriven", "fresh"] {
            assert_eq!(refused(&client, &format!("{delete}'{name}'")).await, "P0001", "{name}, as {mode}");
        }
        assert_eq!(refused(&client, "delete from symphony.payment_outbox_keys").await, "P0001");
        assert_eq!(refused(&client, "truncate symphony.payment_outbox_keys").await, "P0001");
    }
    client.batch_execute("reset session_replication_role").await.unwrap();
    assert_eq!(number(&client, remove).await, 1);
    assert_eq!(
        number(&client, "select count(*) from symphony.payment_outbox_keys where instruction_id = 'gone'").await,
        0
    );
    assert_eq!(number(&client, "select count(*) from symphony.payment_outbox_keys").await, 4);
    let recorded =
        "select sum(removed_rows)::bigint from symphony.retention_removals_log where kept = 'payment_keys'";
    assert_eq!(number(&client, recorded).await, 1);
}

#[tokio::test]
async fn calls_that_remove_keys_read_a_bounded_part_of_the_registry_and_find_all() {
    let (_database, client) = database().await;
    client
        .batch_execute(
            "insert into symphony.payment_outbox_keys (idempotency_key, instruction_id, outbox_id, content_digest, created_at)
             select 'k-' || i, 'i-' || i, symphony.uuidv7_lower_bound(now() - interval '40 days'), sha256('x'), now() - interval '40 days'
             from generate_series(1, 30000) i;
             select symphony.set_retention('payment_ledger', 30, 'ana', 'a test');
             select symphony.set_retention('payment_keys', 30, 'ana', 'a test')",
        )
        .await
        .unwrap();
    let (mut calls, mut removed) = (0, 0);
    while removed < 30_000 {
        let now = number(&client, "select removed from symphony.remove_expired_keys(5000)").await;
        assert!(now <= 5000);
        removed += now;
        calls += 1;
        assert!(calls < 20, "{removed} keys in {calls} calls");
    }
    assert!(calls >= 6, "{calls} calls");
}

#[tokio::test]
async fn processed_events_and_their_errors_are_removed_past_their_retention() {
    let (_database, client) = database().await;
    client
        .batch_execute(
            "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, processed_at)
             select 'order', i::text, 'Paid', '{}',
                    case when i <= 3 then now() - interval '10 days' when i = 4 then now() end
             from generate_series(1, 5) i;
             insert into m10_recovery.outbox_errors (event_id, retry_count, succeeded, processor_id, error, created_at)
             select id, 1, false, 'p', 'unavailable', now() - interval '10 days' from m10_recovery.outbox",
        )
        .await
        .unwrap();
    let remove = "select symphony.remove_processed_events(2)";
    assert_eq!(number(&client, remove).await, 0, "by default events are kept for ever");
    client.batch_execute("select symphony.set_retention('events', 7, 'ana', 'a test')").await.unwrap();
    assert_eq!(
        refused(&client, "delete from m10_recovery.outbox_errors").await,
        "P0001",
        "their events are there"
    );
    assert_eq!(number(&client, remove).await, 2);
    assert_eq!(number(&client, remove).await, 1);
    assert_eq!(number(&client, remove).await, 0);
    assert_eq!(number(&client, "select count(*) from m10_recovery.outbox").await, 2);
    assert_eq!(number(&client, "select count(*) from m10_recovery.outbox_errors").await, 2);
    assert_eq!(refused(&client, "delete from m10_recovery.outbox_errors").await, "P0001");
    let recorded = "select sum(removed_rows)::bigint from symphony.retention_removals_log where kept = 'events'";
    assert_eq!(number(&client, recorded).await, 3);
}

#[tokio::test]
async fn ended_metadata_is_removed_past_its_retention_and_its_version_is_never_used_again() {
    let (_database, client) = database().await;
    client
        .batch_execute(
            "select symphony.create_metadata_entry('invoice', 'e-' || i, '{}') from generate_series(1, 3) i;
             alter table symphony.metadata_outbox disable trigger user;
             update symphony.metadata_outbox set status = 'PUBLISHED', processed_at = now() - interval '10 days' where entity_id = 'e-1';
             update symphony.metadata_outbox set status = 'DLQ', last_error = 'x', updated_at = now() - interval '10 days' where entity_id = 'e-2';
             alter table symphony.metadata_outbox enable trigger user",
        )
        .await
        .unwrap();
    let remove = "select symphony.remove_ended_metadata(10)";
    assert_eq!(number(&client, remove).await, 0, "by default metadata is kept for ever");
    client.batch_execute("select symphony.set_retention('metadata', 7, 'ana', 'a test')").await.unwrap();
    assert_eq!(number(&client, remove).await, 2);
    assert_eq!(number(&client, "select count(*) from symphony.metadata_outbox").await, 1);
    assert_eq!(number(&client, "select count(*) from symphony.metadata_entities").await, 3);
}

#[tokio::test]
async fn a_partition_is_dropped_only_with_a_record_of_exactly_its_rows() {
    let (_database, client) = database().await;
    ledger_partitions::age(&client, 4).await.unwrap();
    client
        .batch_execute(
            "insert into symphony.payment_outbox_attempts
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, claimed_at,
                worker_id, created_at)
             select symphony.uuidv7_lower_bound(p.ends_at - i * interval '1 hour'), 'i-' || i, 'p', i, 'k', 'plain', '{}', 1, 'DISPATCHED', now(), 'w', now()
             from symphony.payment_ledger_partitions() p, generate_series(1, 10) i
             where p.ends_at < now()",
        )
        .await
        .unwrap();
    const RECORD: &str = "select symphony.record_ledger_archive(d.partition_name, 'a', d.row_count, d.content_digest, sha256('m'), '/a', 'ana', 'a test')
                          from (select l.partition_name, g.*
                                from symphony.list_partitions_to_archive() l, symphony.ledger_partition_digest(l.partition_name) g";
    let oldest = format!("{RECORD} order by l.ends_at limit 1) d");
    let newest = format!("{RECORD} order by l.ends_at desc limit 1) d");
    client.batch_execute(&oldest).await.unwrap();
    assert_eq!(
        number(&client, "select count(*) from symphony.payment_ledger_archives").await,
        0,
        "none is past its retention"
    );
    client.batch_execute("select symphony.set_retention('payment_ledger', 14, 'ana', 'a test')").await.unwrap();
    assert_eq!(refused(&client, &newest).await, "P7003", "the oldest comes first");
    for wrong in [("d.row_count", "d.row_count + 1"), ("d.content_digest", "sha256('other')")] {
        assert_eq!(refused(&client, &oldest.replace(wrong.0, wrong.1)).await, "P7003", "{wrong:?}");
    }
    let today = "select symphony.record_ledger_archive(partition_name, 'a', 0, sha256(''), sha256('m'), '/a', 'ana', 'a test')
                 from symphony.payment_ledger_partitions() where starts_at < now() and ends_at > now()";
    assert_eq!(refused(&client, today).await, "P7003", "it is not past its retention");
    client.batch_execute(&oldest).await.unwrap();
    assert_eq!(refused(&client, &oldest.replace("'a'", "'b'")).await, "P7003", "it was archived already");

    let drop = "select symphony.drop_archived_partition(archive_id, 'ana', 'a test') from symphony.payment_ledger_archives";
    assert_eq!(refused(&client, drop).await, "P7003", "it is attached");
    assert_eq!(
        refused(&client, "select symphony.drop_archived_partition(gen_random_uuid(), 'ana', 'a test')").await,
        "P7005"
    );
    client
        .batch_execute("alter table symphony.payment_outbox_attempts detach partition symphony.payment_outbox_attempts_from_start concurrently")
        .await
        .unwrap();
    let change = "insert into symphony.payment_outbox_attempts_from_start
                    (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, claimed_at,
                     worker_id, created_at, attempt_id)
                  values ('00000000-0000-7000-8000-000000000000', 'late', 'p', 1, 'k', 'plain', '{}', 1, 'DISPATCHED', now(), 'w', now(), gen_random_uuid())";
    client.batch_execute(&format!("begin; {change}")).await.unwrap();
    assert_eq!(refused(&client, drop).await, "P7003", "a row was added after the archive");
    client.batch_execute("rollback").await.unwrap();
    client.batch_execute(drop).await.unwrap();
    client.batch_execute("select symphony.attach_first_partition()").await.unwrap();
    let first = "select count(*) from symphony.payment_ledger_partitions() where from_id is null";
    assert_eq!(number(&client, first).await, 1);
    assert_eq!(refused(&client, drop).await, "P7003", "the new first partition is another table");
}

#[tokio::test]
async fn an_archive_waits_for_an_enqueue_that_is_still_open() {
    let (database, client) = database().await;
    ledger_partitions::age(&client, 4).await.unwrap();
    client
        .batch_execute(
            "insert into symphony.payment_outbox_attempts
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, claimed_at,
                worker_id, created_at)
             select symphony.uuidv7_lower_bound(p.ends_at - interval '1 hour'), 'i', 'p', 1, 'k', 'plain', '{}', 1, 'DISPATCHED', now(), 'w', now()
             from symphony.payment_ledger_partitions() p where p.from_id is null;
             select symphony.set_retention('payment_ledger', 14, 'ana', 'a test')",
        )
        .await
        .unwrap();
    let producer = database.connect().await.unwrap();
    producer
        .batch_execute("begin; select symphony.enqueue_payment_outbox('open', 'p', 'open', 'plain', '{}')")
        .await
        .unwrap();
    let record = "select symphony.record_ledger_archive(d.partition_name, 'a', d.row_count, d.content_digest, sha256('m'), '/a', 'ana', 'a test', 100)
                  from (select l.partition_name, g.* from symphony.list_partitions_to_archive() l, symphony.ledger_partition_digest(l.partition_name) g
                        order by l.ends_at limit 1) d";
    assert_eq!(refused(&client, record).await, "55P03", "its id may be in the range");
    producer.batch_execute("commit").await.unwrap();
    client.batch_execute(record).await.unwrap();
}
