//! The partitions of the ledger: added ahead of time without stopping completions, and indexed once they are closed.
#![expect(clippy::unwrap_used, reason = "a test that cannot ask the database has failed")]

use symphony_testkit::{
    bulk_rows, explain, ledger_partitions,
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

async fn text(client: &Client, query: &str) -> String {
    client.query_one(query, &[]).await.unwrap().get::<_, Option<String>>(0).unwrap_or_default()
}

const PARTITIONS: &str = "select count(*) from symphony.payment_ledger_partitions()";
/// Claims all that is due, and completes it.
const COMPLETE: &str = "
    with leased as materialized (
      select array_agg(l.outbox_id) as ids, array_agg(l.lease_token) as tokens,
             array_agg('DISPATCHED'::symphony.outbox_attempt_state) as states
      from symphony.claim_outbox_batch(500, 'worker', 60) l
    )
    select count(*) from leased l, symphony.complete_outbox_batch(l.ids, l.tokens, 'worker', l.states) c
    where c.state is not null";

/// The pages that a completion of 100 reads, in a session that has its plans.
async fn pages_of_a_completion(weeks: i32) -> i64 {
    let (_database, client) = database().await;
    ledger_partitions::age(&client, weeks).await.unwrap();
    for _ in 0..3 {
        bulk_rows::due(&client, "plain", 100).await.unwrap();
        assert_eq!(number(&client, COMPLETE).await, 100);
    }
    bulk_rows::due(&client, "plain", 100).await.unwrap();
    client
        .batch_execute("create temp table leased as select * from symphony.claim_outbox_batch(100, 'worker', 60)")
        .await
        .unwrap();
    let complete = "select c.* from (select array_agg(outbox_id) as ids, array_agg(lease_token) as tokens,
                                           array_agg('DISPATCHED'::symphony.outbox_attempt_state) as states from leased) l,
                                   symphony.complete_outbox_batch(l.ids, l.tokens, 'worker', l.states) c";
    client.batch_execute("begin").await.unwrap();
    let cost = explain::cheapest_of_three(&client, complete).await.unwrap();
    client.batch_execute("rollback").await.unwrap();
    cost.pages
}

#[tokio::test]
async fn a_completion_reads_as_many_pages_with_26_partitions_as_with_5() {
    let (few, many) = (pages_of_a_completion(0).await, pages_of_a_completion(21).await);
    println!("{few} pages with 5 partitions, {many} with 26");
    // A session opens the indexes of all partitions, which costs each completion a page of each at most.
    assert!(many <= few + few / 10 + 21, "{many} pages with 26 partitions, {few} with 5");
}

#[tokio::test]
async fn a_long_reader_puts_the_extension_off_and_completions_go_on() {
    let (database, client) = database().await;
    let reader = database.connect().await.unwrap();
    reader.batch_execute("begin; select count(*) from symphony.payment_outbox_attempts").await.unwrap();
    bulk_rows::due(&client, "plain", 10).await.unwrap();
    let before = number(&client, PARTITIONS).await;
    let put_off = "select skipped from symphony.extend_ledger_at(now() + interval '14 days', 512)";
    let reason = text(&client, put_off).await;
    assert!(reason.contains("the ledger is in use"), "{reason}");
    assert_eq!(number(&client, PARTITIONS).await, before, "nothing was added");
    // With the reader still there and no lock left behind.
    client.batch_execute("set lock_timeout = '1s'").await.unwrap();
    assert_eq!(number(&client, COMPLETE).await, 10);

    reader.batch_execute("commit").await.unwrap();
    assert_eq!(text(&client, put_off).await, "");
    assert_eq!(number(&client, PARTITIONS).await, before + 2);
}

#[tokio::test]
async fn a_call_that_finds_nothing_to_do_locks_nothing() {
    let (_database, client) = database().await;
    client.batch_execute("begin").await.unwrap();
    assert_eq!(text(&client, "select skipped from symphony.extend_payment_ledger()").await, "");
    let locks = "select count(*) from pg_locks l join pg_class c on c.oid = l.relation
                 where l.pid = pg_backend_pid() and c.relname like 'payment_outbox_attempts%' and l.mode <> 'AccessShareLock'";
    assert_eq!(number(&client, locks).await, 0);
}

#[tokio::test]
async fn calls_at_once_make_each_partition_once_and_none_fails() {
    let (database, client) = database().await;
    let mut calls = Vec::new();
    for _ in 0..8 {
        let caller = database.connect().await.unwrap();
        calls.push(tokio::spawn(async move {
            let extend =
                "select cardinality(created)::bigint from symphony.extend_ledger_at(now() + interval '21 days', 512)";
            number(&caller, extend).await
        }));
    }
    let mut created = 0;
    for call in calls {
        created += call.await.unwrap();
    }
    assert_eq!(created, 3);
    assert_eq!(number(&client, PARTITIONS).await, 8);
}

#[tokio::test]
async fn every_outbox_id_has_a_partition() {
    let (_database, client) = database().await;
    let insert = "insert into symphony.payment_outbox_attempts
                    (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, claimed_at,
                     worker_id, created_at)
                  select i.id::uuid, i.id, 'p', 1, 'k', 'plain', '{}', 1, 'DISPATCHED', now(), 'w', now()
                  from unnest(array['00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff']) as i (id)";
    assert_eq!(client.execute(insert, &[]).await.unwrap(), 2);
    // The last partition cannot end before that id: it stays the last, and completions go on.
    let reason =
        text(&client, "select skipped from symphony.extend_ledger_at(now() + interval '7 days', 512)").await;
    assert!(reason.contains("so it stays the last partition"), "{reason}");
    bulk_rows::due(&client, "plain", 10).await.unwrap();
    assert_eq!(number(&client, COMPLETE).await, 10);
}

#[tokio::test]
async fn a_partition_that_was_not_ended_in_time_is_read_only_up_to_the_limit() {
    let (_database, client) = database().await;
    // The last partition has started five weeks ago, and has today's rows.
    ledger_partitions::age(&client, 0).await.unwrap();
    client
        .batch_execute(
            "do $$ declare v_name text; begin
               for v_name in select partition_name from symphony.payment_ledger_partitions() loop
                 execute format('drop table symphony.%I', v_name);
               end loop;
             end $$;
             select from symphony.extend_ledger_at(now() - interval '63 days', 0)",
        )
        .await
        .unwrap();
    bulk_rows::due(&client, "plain", 10).await.unwrap();
    assert_eq!(number(&client, COMPLETE).await, 10);
    assert_eq!(number(&client, "select partitions_ahead::bigint from symphony.extend_payment_ledger(0)").await, 0);
    let reason = text(&client, "select skipped from symphony.extend_payment_ledger(0)").await;
    assert!(reason.contains("has more than 0 MB of rows"), "{reason}");
    assert_eq!(number(&client, "select partitions_ahead::bigint from symphony.extend_payment_ledger()").await, 4);
    assert_eq!(number(&client, "select count(*) from symphony.payment_outbox_attempts").await, 10);
}

#[tokio::test]
async fn a_closed_partition_is_indexed_when_no_row_of_its_range_is_pending() {
    let (_database, client) = database().await;
    ledger_partitions::age(&client, 2).await.unwrap();
    client
        .batch_execute(
            "insert into symphony.payment_outbox_pending
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload)
             values (symphony.uuidv7_lower_bound(now() - interval '7 days'), 'late', 'p', 1, 'k', 'plain', '{}')",
        )
        .await
        .unwrap();
    let index = "select string_agg(i, ',') from symphony.extend_payment_ledger() e, unnest(e.indexed) as i (i)";
    assert_eq!(text(&client, index).await, "payment_outbox_attempts_from_start");
    assert_eq!(text(&client, index).await, "", "the other has a pending row");
    assert_eq!(number(&client, COMPLETE).await, 1);
    assert!(text(&client, index).await.starts_with("payment_outbox_attempts_from_2"));
    assert_eq!(text(&client, index).await, "");
    let searchable = "select count(*) from symphony.payment_ledger_partitions() where is_searchable";
    assert_eq!(number(&client, searchable).await, 2);
}

#[tokio::test]
async fn a_search_by_participant_finds_each_outbox_once_in_closed_and_open_partitions() {
    let (_database, client) = database().await;
    ledger_partitions::age(&client, 5).await.unwrap();
    // Five weeks of 5,000 in closed partitions, 30,000 in the open one: more than a page reads there. Each tenth is of the participant.
    client
        .batch_execute(
            "insert into symphony.payment_outbox_attempts
               (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state, claimed_at,
                worker_id, created_at)
             select (left(symphony.uuidv7_lower_bound(h.at)::text, 15) || right(md5(i::text), 3) || '-8' || left(md5(i::text), 3) || '-' || right(md5(i::text), 12))::uuid,
                    'i-' || i, case when i % 10 = 0 then 'shop' else 'other-' || i % 100 end, i, 'k-' || i, 'plain', '{}', 1, 'DISPATCHED', h.at, 'w', h.at
             from generate_series(1, 55000) i
             cross join lateral (
               select case when i <= 25000 then now() - (36 - i / 1000.0) * interval '24 hours' else now() - (55000 - i) * interval '1 millisecond' end as at
             ) h",
        )
        .await
        .unwrap();
    for _ in 0..6 {
        client.batch_execute("select from symphony.extend_payment_ledger()").await.unwrap();
    }
    let (mut before, mut found, mut pages) = (None::<String>, Vec::new(), 0);
    loop {
        let page = client
            .query_one(
                "select s.next_before::text, array(select o->>'outbox_id' from jsonb_array_elements(s.outboxes) o)
                 from symphony.search_payment_outboxes(null, 'shop', null, null, null, null, null, null, $1::text::uuid, 200) s",
                &[&before],
            )
            .await
            .unwrap();
        found.extend(page.get::<_, Vec<String>>(1));
        pages += 1;
        before = page.get(0);
        if before.is_none() {
            break;
        }
    }
    assert!(found.is_sorted_by(|newer, older| newer > older), "the newest first, and none twice");
    assert_eq!(found.len(), 5500, "in {pages} pages");
}
