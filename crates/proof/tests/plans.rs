//! Plans and pages of a claim, a completion and an enqueue on large tables without statistics.
//!
//! Pages are counted rather than milliseconds, because their number is the same on every machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot ask the database has failed")]

use std::{future::poll_fn, sync::Arc, sync::Mutex};

use symphony_testkit::{
    bulk_rows, explain,
    test_database::{Database, Server},
};
use tokio_postgres::{AsyncMessage, Client, NoTls};

async fn database() -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    bulk_rows::rails(&client).await.unwrap();
    (database, client)
}

const CLAIM: &str = "select * from symphony.claim_outbox_batch(100, 'planner', 60)";

/// The cost of a claim of 100, once its session has compiled the functions.
struct Cost {
    /// Pages of the database that it read, from memory or from disk.
    pages: i64,
    /// How often it read the whole queue or the whole ledger.
    seq_scans: i64,
    /// How often it used the index of the claim order.
    index_scans: i64,
    /// Its plans, where the server has auto_explain.
    plans: Option<String>,
}

/// Claims 100 due rows three times, and returns the cost of the next claims.
async fn claim(database: &Database) -> Cost {
    let (client, mut connection) = tokio_postgres::connect(&database.url(), NoTls).await.unwrap();
    let received = Arc::new(Mutex::new(String::new()));
    let notices = Arc::clone(&received);
    tokio::spawn(async move {
        while let Some(Ok(message)) = poll_fn(|context| connection.poll_message(context)).await {
            if let AsyncMessage::Notice(notice) = message {
                notices.lock().unwrap().push_str(notice.message());
            }
        }
    });
    for _ in 0..2 {
        assert_eq!(client.query(CLAIM, &[]).await.unwrap().len(), 100, "the claim found what is due");
    }

    // The claim floor that the session caches would expire on a slow machine: let it never expire.
    client
        .execute(
            "select set_config('symphony.claim_low_watermarks',
                               jsonb_set(f.floors::jsonb, '{plain,until}', '\"infinity\"')::text, false)
             from nullif(current_setting('symphony.claim_low_watermarks', true), '') as f (floors)
             where f.floors is not null",
            &[],
        )
        .await
        .unwrap();

    let explained = client
        .batch_execute(
            "load 'auto_explain';
             set auto_explain.log_min_duration = 0;
             set auto_explain.log_nested_statements = on;
             set auto_explain.log_level = notice",
        )
        .await
        .is_ok();
    assert_eq!(client.query(CLAIM, &[]).await.unwrap().len(), 100, "the claim found what is due");
    if explained {
        client.batch_execute("set auto_explain.log_min_duration = -1").await.unwrap();
    }

    client.batch_execute("begin").await.unwrap();
    let cost = explain::cheapest_of_three(&client, CLAIM).await.unwrap();
    assert_eq!(cost.rows, Some(100.0), "the claim found what is due");
    let scans = client
        .query_one(
            "select (select sum(seq_scan) from pg_stat_xact_user_tables
                     where relname in ('payment_outbox_pending', 'payment_outbox_attempts'))::bigint,
                    pg_stat_get_xact_numscans('symphony.payment_outbox_pending_claim_order'::regclass)",
            &[],
        )
        .await
        .unwrap();
    client.batch_execute("rollback").await.unwrap();
    Cost {
        pages: cost.pages,
        seq_scans: scans.get(0),
        index_scans: scans.get(1),
        plans: explained.then(|| received.lock().unwrap().clone()),
    }
}

impl Cost {
    /// Used the index of the claim order, and read at most twice the pages of the baseline.
    fn assert_like(&self, baseline: &Self, case: &str) {
        assert!(self.pages <= 2 * baseline.pages, "{} pages {case}, {} without", self.pages, baseline.pages);
        assert_eq!(self.seq_scans, 0, "the queue or the ledger was read from end to end");
        assert!(self.index_scans > 0, "the claim order was not used");
        let Some(plans) = &self.plans else { return };
        assert!(plans.contains("using payment_outbox_pending_claim_order"), "{plans}");
        for table in ["payment_outbox_pending", "payment_outbox_attempts"] {
            for scan in ["Seq Scan on", "Bitmap Heap Scan on"] {
                assert!(!plans.contains(&format!("{scan} {table}")), "{scan} {table}:\n{plans}");
            }
        }
        assert!(!plans.contains("JIT:"), "{plans}");
    }
}

/// The cost of a claim with only due rows on `rail`.
async fn baseline(rail: &str) -> Cost {
    let (database, client) = database().await;
    bulk_rows::due(&client, rail, 600).await.unwrap();
    claim(&database).await
}

#[tokio::test]
async fn a_claim_costs_the_same_with_a_million_rows_that_are_not_due() {
    let (database, client) = database().await;
    bulk_rows::scheduled(&client, "plain", 1_000_000).await.unwrap();
    bulk_rows::due(&client, "plain", 600).await.unwrap();

    claim(&database).await.assert_like(&baseline("plain").await, "with a million scheduled rows");
}

#[tokio::test]
async fn a_claim_costs_the_same_with_200000_rows_behind_one_ordered_head() {
    let (database, client) = database().await;
    bulk_rows::behind_a_head(&client, 200_000).await.unwrap();
    let (parked, first) = bulk_rows::park_all(&client).await.unwrap();
    assert_eq!(parked, 200_000, "all that waits is parked");
    assert!(first <= 1_064, "one claim parked {first} rows");
    // What parking left behind in the index goes with the next vacuum, which is switched off here.
    client.batch_execute("vacuum symphony.payment_outbox_pending").await.unwrap();
    bulk_rows::due(&client, "strict", 600).await.unwrap();

    claim(&database).await.assert_like(&baseline("strict").await, "behind 200,000 rows");
}

/// Claims and completes the rows of a participant on the ordered rail one by one, and returns the pages of the last claim
/// and completion. The participant has so many rows on another rail before and after the first of them.
async fn pages_of_a_stream(on_another_rail: i32) -> (i64, i64) {
    let (_database, client) = database().await;
    let insert = "insert into symphony.payment_outbox_pending
                    (instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, next_attempt_at)
                  select 'i-' || i, 'busy', i, 'key', case when i = $1 + 1 or i > 2 * $1 + 1 then 'strict' else 'plain' end, '{}',
                         now() + case when i = $1 + 1 or i > 2 * $1 + 1 then interval '-1 hour' else interval '1 hour' end
                  from generate_series(1, 2 * $1 + 4) i";
    client.execute(insert, &[&on_another_rail]).await.unwrap();
    // Only heads are claimed, so the four rows of the stream take four claims.
    let claim =
        "create temp table leased on commit drop as select * from symphony.claim_outbox_batch(10, 'planner', 60)";
    let complete = "select c.* from leased l,
                           symphony.complete_outbox_batch(array[l.outbox_id], array[l.lease_token], 'planner', '{DISPATCHED}') c";
    for _ in 0..3 {
        client.batch_execute("begin").await.unwrap();
        assert_eq!(client.execute(claim, &[]).await.unwrap(), 1, "one head");
        client.batch_execute(&format!("{complete}; commit")).await.unwrap();
    }
    client.batch_execute("begin").await.unwrap();
    let claimed = explain::cheapest_of_three(&client, CLAIM).await.unwrap();
    assert_eq!(claimed.rows, Some(1.0));
    client.batch_execute(claim).await.unwrap();
    let completed = explain::cheapest_of_three(&client, complete).await.unwrap();
    client.batch_execute("rollback").await.unwrap();
    (claimed.pages, completed.pages)
}

#[tokio::test]
async fn a_stream_costs_the_same_with_100000_rows_of_its_participant_on_another_rail() {
    let (alone, beside) = (pages_of_a_stream(10).await, pages_of_a_stream(50_000).await);
    assert!(beside.0 <= 2 * alone.0, "a claim reads {} pages, {} without", beside.0, alone.0);
    assert!(beside.1 <= 2 * alone.1, "a completion reads {} pages, {} without", beside.1, alone.1);
}

#[tokio::test]
async fn a_claim_costs_the_same_beside_a_rail_that_is_paused_or_at_its_in_flight_limit() {
    let (database, client) = database().await;
    bulk_rows::due(&client, "plain", 1_200).await.unwrap();
    bulk_rows::due(&client, "strict", 200_000).await.unwrap();
    let pause = "select symphony.pause_payment_rail('strict', 'test', 'plan test')";
    client.execute(pause, &[]).await.unwrap();
    let baseline = baseline("plain").await;
    claim(&database).await.assert_like(&baseline, "beside a paused rail");

    // One lease reaches the in-flight limit of the rail; the other rail is paused meanwhile.
    client
        .batch_execute(
            "select symphony.pause_payment_rail('plain', 'test', 'plan test');
             select symphony.set_payment_rail('strict', '{\"ordered\": false, \"max_in_flight\": 1}', 'test', 'plan test');
             select symphony.resume_payment_rail('strict', 'test', 'plan test');
             select from symphony.claim_outbox_batch(5, 'holder', 3600);
             select symphony.resume_payment_rail('plain', 'test', 'plan test')",
        )
        .await
        .unwrap();
    claim(&database).await.assert_like(&baseline, "beside a rail at its cap");
}

#[tokio::test]
async fn a_claim_skips_dead_tuples_that_a_held_snapshot_keeps() {
    let (database, client) = database().await;
    let holder = database.connect().await.unwrap();
    holder.batch_execute("begin isolation level repeatable read; select 1 from pg_class limit 1").await.unwrap();
    bulk_rows::dispatched(&client, 50_000).await.unwrap();
    bulk_rows::due_since(&client, "plain", 600, 2).await.unwrap();
    let cost = claim(&database).await;
    holder.batch_execute("commit").await.unwrap();

    cost.assert_like(&baseline("plain").await, "behind 50,000 dead rows");
}

#[tokio::test]
async fn a_completion_finds_its_row_by_the_key_though_its_plan_was_made_for_a_table_of_one() {
    let (_database, client) = database().await;
    let complete = async || {
        bulk_rows::due(&client, "plain", 1).await.unwrap();
        let sql = "select c.state::text
                   from symphony.claim_outbox_batch(1, 'planner', 60) l,
                        symphony.complete_outbox_batch(array[l.outbox_id], array[l.lease_token], 'planner', '{DISPATCHED}') c";
        assert_eq!(client.query_one(sql, &[]).await.unwrap().get::<_, String>(0), "DISPATCHED");
    };
    bulk_rows::due(&client, "plain", 1).await.unwrap();
    client.batch_execute("vacuum analyze symphony.payment_outbox_pending").await.unwrap();
    complete().await;
    bulk_rows::scheduled(&client, "plain", 50_000).await.unwrap();
    client.batch_execute("begin").await.unwrap();
    complete().await;
    for index in ["payment_outbox_pending_pkey", "payment_outbox_pending_claim_order"] {
        let scanned = format!("select pg_stat_get_xact_tuples_returned('symphony.{index}'::regclass)");
        let scanned: i64 = client.query_one(&scanned, &[]).await.unwrap().get(0);
        assert!(scanned <= 10, "{scanned} entries of {index} were read for one row");
    }
}

#[tokio::test]
async fn an_enqueue_looks_for_its_key_by_an_index_though_its_plan_was_made_for_a_table_of_one() {
    let (_database, client) = database().await;
    let enqueue = async |number: i32| {
        let sql =
            "select replayed from symphony.enqueue_payment_outbox('i-' || $1::int4, 'p', 'k', 'plain', '{}')";
        assert!(!client.query_one(sql, &[&number]).await.unwrap().get::<_, bool>(0));
    };
    bulk_rows::due(&client, "plain", 1).await.unwrap();
    client.batch_execute("vacuum analyze symphony.payment_outbox_pending").await.unwrap();
    // Until the session keeps one plan for whatever comes.
    for number in 0..10 {
        enqueue(number).await;
    }
    bulk_rows::scheduled(&client, "plain", 50_000).await.unwrap();
    client.batch_execute("begin").await.unwrap();
    enqueue(10).await;
    let walked = "select pg_stat_get_xact_tuples_returned('symphony.payment_outbox_pending'::regclass)";
    let walked: i64 = client.query_one(walked, &[]).await.unwrap().get(0);
    assert_eq!(walked, 0, "rows that were read one after the other to look for one key");
}

#[tokio::test]
async fn a_sequence_number_costs_the_same_however_many_were_taken_under_a_held_snapshot() {
    let (database, client) = database().await;
    let bump = "select symphony.bump_participant_outbox_seq('busy')";
    let pages = async || {
        client.batch_execute("begin").await.unwrap();
        let cost = explain::cheapest_of_three(&client, bump).await.unwrap();
        client.batch_execute("rollback").await.unwrap();
        cost.pages
    };
    let holder = database.connect().await.unwrap();
    holder.batch_execute("begin isolation level repeatable read; select 1").await.unwrap();
    for _ in 0..10 {
        client.execute(bump, &[]).await.unwrap();
    }
    let fresh = pages().await;
    // Each is a dead tuple that VACUUM cannot remove, in some hundred pages.
    let many = "do $$ begin \
                  for i in 1 .. 20000 loop perform symphony.bump_participant_outbox_seq('busy'); end loop; \
                end $$";
    client.batch_execute(many).await.unwrap();
    let later = pages().await;
    assert!(later <= 2 * fresh, "{later} pages after 20,000 numbers, {fresh} at first");
    holder.batch_execute("rollback").await.unwrap();
}

#[tokio::test]
async fn a_claim_of_first_attempts_costs_the_same_beside_any_number_of_retries() {
    let (_database, client) = database().await;
    let claim = "select * from symphony.claim_outbox_batch(1, 'planner', 60, '{\"plain\": 1}', null, null, array['plain'])";
    let pages = async || {
        client.batch_execute("begin").await.unwrap();
        let cost = explain::cheapest_of_three(&client, claim).await.unwrap();
        client.batch_execute("rollback").await.unwrap();
        cost.pages
    };
    let attempted = "update symphony.payment_outbox_pending set attempt_count = 1";
    bulk_rows::due(&client, "plain", 2000).await.unwrap();
    client.batch_execute(attempted).await.unwrap();
    let few = pages().await;
    bulk_rows::due(&client, "plain", 50_000).await.unwrap();
    client.batch_execute(attempted).await.unwrap();
    client.batch_execute("vacuum symphony.payment_outbox_pending").await.unwrap();
    let many = pages().await;
    assert!(many <= 2 * few, "{many} pages beside 52,000 retries, {few} beside 2,000");
}

#[tokio::test]
async fn a_single_rail_is_scanned_once() {
    let (_database, client) = database().await;
    bulk_rows::due(&client, "plain", 100).await.unwrap();
    client.batch_execute("begin").await.unwrap();
    let claim = "select * from symphony.claim_outbox_batch(100, 'planner', 60, '{\"plain\": 10}')";
    assert_eq!(client.query(claim, &[]).await.unwrap().len(), 10);
    let scans = "select pg_stat_get_xact_numscans('symphony.payment_outbox_pending_claim_order'::regclass)";
    assert_eq!(client.query_one(scans, &[]).await.unwrap().get::<_, i64>(0), 1);
}
