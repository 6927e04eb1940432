//! Queries of the console use their indexes and read few pages beside a long history, on tables without statistics.
//!
//! Pages are counted rather than milliseconds, because their number is the same on every machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot ask the database has failed")]

use symphony_db::event;
use symphony_testkit::{bulk_rows, explain, test_database::Server};
use tokio_postgres::Client;

/// Every query of a page or an endpoint, with an id that exists and one that does not.
const QUERIES: [&str; 31] = [
    "select * from symphony.payment_backlog()",
    "select * from symphony.payment_recent_stats()",
    "select * from symphony.payment_leases()",
    "select * from symphony.count_payment_dead_letters(null, null)",
    "select * from symphony.list_payment_dead_letters(true, null, null, null, 50)",
    "select * from symphony.list_payment_dead_letters(null, 'plain', 'NONE', null, 50)",
    "select * from symphony.search_payment_outboxes(null, null, null, null, null, null, null, null, null, 50)",
    "select * from symphony.search_payment_outboxes('past-77', null, null, null, null, null, null, null, null, 50)",
    "select * from symphony.search_payment_outboxes(null, 'shop-77', null, null, null, null, null, null, null, 50)",
    "select * from symphony.search_payment_outboxes(null, null, 'past-77/key', null, null, null, null, null, null, 50)",
    "select * from symphony.search_payment_outboxes('past-77', null, 'past-77/key', null, null, null, null, null, null, 50)",
    "select * from symphony.search_payment_outboxes('none', null, null, null, null, null, null, null, null, 50)",
    "select * from symphony.search_payment_outboxes(null, null, null, 'plain', 'FAILED', 'NONE', null, null, null, 50)",
    "select * from symphony.search_payment_outboxes(null, null, null, 'none', 'DISPATCHED', null, null, null, null, 50)",
    "select * from symphony.search_payment_outboxes(null, null, null, null, 'DUE', null, now() - interval '1 hour', now(), null, 50)",
    "select o.* from symphony.payment_outboxes o where o.outbox_id = (select k.outbox_id from symphony.payment_outbox_keys k
       where k.instruction_id = 'past-77' and k.idempotency_key = 'past-77/key')",
    "select p.* from symphony.payment_participants p where p.participant_id > 'shop-5' order by p.participant_id limit 50",
    "select o.* from symphony.payment_outbox_operations_log o
       where o.created_at >= now() - interval '1 day' and o.created_at < now()
         and (o.created_at, o.operation_id) > (now() - interval '1 day', '00000000-0000-0000-0000-000000000000')
       order by o.created_at, o.operation_id limit 100",
    "select * from symphony.event_backlog()",
    event::reader::RECENT_STATS,
    "select * from symphony.metadata_backlog()",
    "select * from symphony.metadata_recent_stats()",
    "select * from symphony.search_metadata_entries(null, null, null, null, null, null, null, null, 50)",
    "select * from symphony.search_metadata_entries('document', 'past-77', null, null, null, null, null, null, 50)",
    "select * from symphony.search_metadata_entries(null, null, 'PENDING', null, null, null, null, null, 50)",
    "select * from symphony.search_metadata_entries(null, null, 'PROCESSING', null, null, null, null, null, 50)",
    "select * from symphony.search_metadata_entries(null, null, 'PUBLISHED', null, null, null, null, null, 50)",
    "select * from symphony.search_metadata_entries(null, null, 'FAILED', null, null, null, null, null, 50)",
    "select * from symphony.search_metadata_entries(null, null, 'DLQ', 'NONE', null, null, null, null, 50)",
    "select * from symphony.search_metadata_entries('none', null, null, null, now() - interval '1 hour', now(), null, null, 50)",
    "select e.* from symphony.metadata_outbox_entries e where e.id = (select o.id from symphony.metadata_outbox o
       where o.entity_type = 'document' and o.entity_id = 'past-77')",
];

/// The pages that each query reads, and the sequential scans of payment tables.
async fn costs(ended: i32, pending: i32) -> Vec<(i64, i64)> {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    bulk_rows::rails(&client).await.unwrap();
    client
        .batch_execute("alter table symphony.payment_outbox_operations set (autovacuum_enabled = off)")
        .await
        .unwrap();
    bulk_rows::history(&client, ended, pending).await.unwrap();
    bulk_rows::parked(&client, pending / 2).await.unwrap();
    bulk_rows::events(&client, ended, pending + 10_000).await.unwrap();
    bulk_rows::metadata(&client, ended, pending + 10_000).await.unwrap();
    let mut costs = Vec::new();
    for question in QUERIES {
        costs.push(cost(&client, question).await);
    }
    costs
}

async fn cost(client: &Client, question: &str) -> (i64, i64) {
    // Event queries are no functions and run with enable_seqscan off, as in the sessions of the console.
    let scans = if question.contains("from m10_recovery.") { "off" } else { "on" };
    let set = format!("set enable_seqscan = {scans}; set enable_bitmapscan = {scans}");
    client.batch_execute(&set).await.unwrap();
    // The first call compiles the functions of the session.
    client.query(question, &[]).await.unwrap();
    client.batch_execute("begin").await.unwrap();
    let cost = explain::cheapest_of_three(client, question).await.unwrap();
    let scans = client
        .query_one(
            "select sum(seq_scan)::bigint from pg_stat_xact_user_tables
             where relname in ('payment_outbox_pending', 'payment_outbox_attempts', 'payment_outbox_keys', 'payment_outbox_operations', 'outbox', 'outbox_errors', 'metadata_outbox')",
            &[],
        )
        .await
        .unwrap();
    client.batch_execute("rollback").await.unwrap();
    (cost.pages, scans.get(0))
}

#[tokio::test]
async fn a_console_query_costs_the_same_with_five_times_the_history() {
    // The smaller database has more rows than nearly all limits, so that both reach them.
    let small = costs(12_000, 25_000).await;
    let large = costs(60_000, 125_000).await;
    let mut dear = Vec::new();
    for (question, ((few, _), (many, scans))) in QUERIES.iter().zip(small.iter().zip(&large)) {
        println!("{few:>7} {many:>7} pages, {scans} scans: {question}");
        assert_eq!(*scans, 0, "read from end to end: {question}");
        let bound = if question.contains("dead_letters") {
            // Neither has five thousand failures: the pages grow with the failures.
            8 * 60_000 / 50 + 500
        } else if question.contains("'FAILED', 'NONE'") || question.contains("'DLQ'") {
            // Only the larger one has a thousand failures: each is scanned and then read.
            20 * 1000
        } else {
            2 * few + 100
        };
        if *many > bound {
            dear.push(format!("{many} pages beside five times the past, {few} without: {question}"));
        }
    }
    assert!(dear.is_empty(), "{dear:#?}");
}
