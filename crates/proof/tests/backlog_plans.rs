//! What the gauges, `symphony status`, the console and a repair pass read does not grow with the backlog.
//!
//! Pages are counted rather than milliseconds, because their number is the same on every machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot ask the database has failed")]

use symphony_testkit::{
    bulk_rows, explain,
    test_database::{Database, Server},
};
use tokio_postgres::Client;

/// Every read of the backlog, and the repair of each lane that has one.
const READS: [&str; 11] = [
    "select * from symphony.supervisor_outbox_status",
    "select * from symphony.payment_backlog()",
    "select * from symphony.payment_leases()",
    "select * from symphony.payment_recent_stats()",
    "select * from symphony.next_outbox_due()",
    "select * from symphony.repair_expired_leases(1000, 'repairer')",
    "select * from m10_recovery.outbox_status",
    "select * from symphony.metadata_outbox_status",
    "select * from symphony.metadata_backlog()",
    "select * from symphony.next_metadata_due()",
    "select * from symphony.repair_metadata_entries()",
];
/// The pages that a repair pass reads behind the front of the rails.
const SWEEP_PAGES: i64 = 1024;

async fn database() -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    bulk_rows::rails(&client).await.unwrap();
    (database, client)
}

/// The pages that each read takes with this many due rows in each lane, and the sequential scans.
async fn costs(payments: i32, others: i32) -> Vec<(i64, i64)> {
    let (_database, client) = database().await;
    bulk_rows::due(&client, "plain", payments).await.unwrap();
    client
        .batch_execute(&format!(
            "alter table m10_recovery.outbox set (autovacuum_enabled = off);
             alter table symphony.metadata_outbox set (autovacuum_enabled = off);
             insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload)
             select 'order', 'order-' || i, 'Placed', '{{}}' from generate_series(1, {others}) i;
             insert into symphony.metadata_outbox (id, entity_type, entity_id, metadata, max_retries, created_at, updated_at)
             select gen_random_uuid(), 'document', 'document-' || i, '{{}}', 20, clock_timestamp(), now()
             from generate_series(1, {others}) i"
        ))
        .await
        .unwrap();
    let mut costs = Vec::new();
    for read in READS {
        // The first call compiles the functions of the session.
        client.query(read, &[]).await.unwrap();
        client.batch_execute("begin; update symphony.payment_repair_cursor set next_page = 0").await.unwrap();
        let cost = explain::cheapest_of_three(&client, read).await.unwrap();
        let scans = client
            .query_one(
                "select sum(seq_scan)::bigint from pg_stat_xact_user_tables
                 where relname in ('payment_outbox_pending', 'payment_outbox_attempts', 'outbox', 'metadata_outbox')",
                &[],
            )
            .await
            .unwrap();
        client.batch_execute("rollback").await.unwrap();
        costs.push((cost.pages, scans.get(0)));
    }
    costs
}

#[tokio::test]
async fn gauges_status_console_and_repair_read_the_same_with_ten_times_the_due_rows() {
    // The smaller backlog is beyond every limit too.
    let small = costs(80_000, 15_000).await;
    let large = costs(800_000, 150_000).await;
    for (read, ((few, _), (many, scans))) in READS.iter().zip(small.iter().zip(&large)) {
        println!("{few:>6} {many:>6} pages, {scans} scans: {read}");
        // Rows that were inserted at one time do not share pages in quite the same way, and a larger index is deeper.
        assert!(
            *many <= few + few / 10 + 20,
            "{many} pages with ten times as many due rows, {few} before: {read}"
        );
        assert_eq!(*scans, 0, "read from end to end: {read}");
    }
}

/// Leases the rows with these ranks in the claim order of `plain` to a worker that is gone.
async fn expire(client: &Client, ranks: &[i32]) {
    let expired = client
        .execute(
            "update symphony.payment_outbox_pending p
             set claimed_by = 'gone', claimed_at = now() - interval '1 hour', lease_token = gen_random_uuid(),
                 lease_expires_at = now() - interval '1 minute'
             from (
               select w.outbox_id, row_number() over (order by w.next_attempt_at, w.created_at) as rank
               from symphony.payment_outbox_pending w
               where w.rail_type = 'plain'
             ) w
             where w.outbox_id = p.outbox_id
               and w.rank = any ($1::int[])",
            &[&ranks],
        )
        .await
        .unwrap();
    assert_eq!(usize::try_from(expired).unwrap(), ranks.len());
}

async fn repair(client: &Client, batch_size: i32) -> usize {
    let call = "select * from symphony.repair_expired_leases($1, 'repairer')";
    client.query(call, &[&batch_size]).await.unwrap().len()
}

/// The calls that a whole sweep takes, and one that begins in its middle.
async fn calls_of_a_sweep(client: &Client) -> i64 {
    let pages = "select pg_relation_size('symphony.payment_outbox_pending') / current_setting('block_size')::int";
    let pages: i64 = client.query_one(pages, &[]).await.unwrap().get(0);
    pages / SWEEP_PAGES + 2
}

#[tokio::test]
async fn an_expired_lease_is_repaired_within_one_sweep_wherever_it_is() {
    let (_database, client) = database().await;
    let due = 200_000;
    bulk_rows::due(&client, "plain", due).await.unwrap();
    // No claim comes by, so that repair alone can find them.
    client.batch_execute("select symphony.pause_payment_rail('plain', 'test', 'maintenance')").await.unwrap();
    let ranks = [1, 10_000, 10_001, 10_002, 60_000, 119_000, 199_999, 200_000];
    expire(&client, &ranks).await;

    let first = repair(&client, 1000).await;
    assert!(first >= 2, "the first call finds those at the front, not {first}");
    let calls = calls_of_a_sweep(&client).await;
    assert!(calls > 4, "the table has more pages than one call reads");
    let mut found = first;
    for _ in 1..calls {
        found += repair(&client, 1000).await;
    }
    assert_eq!(found, ranks.len(), "each once, in {calls} calls");

    // From wherever the cursor stands now, and a batch that is smaller than what one part of the sweep finds.
    expire(&client, &[150_000, 150_001, 150_002, 150_003, 150_004]).await;
    let mut found = 0;
    for _ in 0..calls + 5 {
        let batch = repair(&client, 2).await;
        assert!(batch <= 2);
        found += batch;
    }
    assert_eq!(found, 5);

    let ledger = "select count(*) from symphony.payment_outbox_attempts where state = 'ZOMBIE_REQUEUE' and worker_id = 'gone'";
    assert_eq!(client.query_one(ledger, &[]).await.unwrap().get::<_, i64>(0), 13);
    let left = "select count(*) from symphony.payment_outbox_pending where lease_token is not null";
    assert_eq!(client.query_one(left, &[]).await.unwrap().get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_repair_of_everything_needs_one_call() {
    let (_database, client) = database().await;
    bulk_rows::due(&client, "plain", 100_000).await.unwrap();
    expire(&client, &[1, 50_000, 100_000]).await;
    let call = "select * from symphony.repair_expired_leases(1000, 'repairer', null)";
    assert_eq!(client.query(call, &[]).await.unwrap().len(), 3);
}

#[tokio::test]
async fn a_repair_whose_transaction_stays_open_does_not_stop_the_others() {
    let (database, client) = database().await;
    bulk_rows::due(&client, "plain", 100_000).await.unwrap();
    expire(&client, &[100_000]).await;
    let other = database.connect().await.unwrap();
    repair(&client, 1000).await;
    other.batch_execute("begin").await.unwrap();
    repair(&other, 1000).await;

    // It leaves the sweep to the one that holds the cursor, and repairs the front.
    expire(&client, &[1]).await;
    assert_eq!(repair(&client, 1000).await, 1);
    other.batch_execute("rollback").await.unwrap();
    let mut found = 0;
    for _ in 0..calls_of_a_sweep(&client).await {
        found += repair(&client, 1000).await;
    }
    assert_eq!(found, 1, "what the one that was rolled back had found or not");
}

#[tokio::test]
async fn a_repair_reads_the_table_only_if_a_rail_has_more_due_rows_than_it_read() {
    let (_database, client) = database().await;
    bulk_rows::due(&client, "plain", 5_000).await.unwrap();
    bulk_rows::scheduled(&client, "plain", 50_000).await.unwrap();
    expire(&client, &[4_000]).await;
    assert_eq!(repair(&client, 1000).await, 1);
    let cursor = "select next_page from symphony.payment_repair_cursor";
    assert_eq!(client.query_one(cursor, &[]).await.unwrap().get::<_, i64>(0), 0);
}
