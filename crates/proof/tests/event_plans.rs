//! Pages that a claim of events and the totals read on large tables without statistics.
//!
//! Pages are counted rather than milliseconds, because their number is the same on every machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot ask the database has failed")]

use symphony_testkit::{
    explain,
    test_database::{Database, Server},
};
use tokio_postgres::Client;

const CLAIM: &str = "select * from m10_recovery.claim_outbox_events('planner', 100)";
const IN_ORDER: &str = "select * from symphony.claim_events_in_order('planner', 100, 50)";
const IN_ORDER_AND_COMPLETE: &str = "\
    select r.* \
    from (select array_agg(c.id) as ids from symphony.claim_events_in_order('planner', 100, 50) c) c, \
         symphony.complete_event_batch(c.ids, array_fill('planner'::text, array[100]), array_fill(true, array[100]), \
                                       p_with_next => true) r \
    where r.refusal is null";
const STATUS: &str = "select * from m10_recovery.outbox_status";

async fn database() -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    client.batch_execute("alter table m10_recovery.outbox set (autovacuum_enabled = off)").await.unwrap();
    (database, client)
}

/// Inserts `count` events in this state.
async fn insert_events(client: &Client, count: i32, column: &str, value: &str) {
    let insert = format!(
        "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload{}{column}) \
         select 'order', 'order-' || i, 'Placed', '{{}}'{}{value} from generate_series(1, $1) i",
        if column.is_empty() { "" } else { ", " },
        if value.is_empty() { "" } else { ", " },
    );
    client.execute(&insert, &[&count]).await.unwrap();
}

/// What a statement took, once the session has compiled it: pages, and whether it read the table from end to end.
async fn cost(database: &Database, statement: &str) -> (i64, i64) {
    let client = database.connect().await.unwrap();
    cost_on(&client, statement).await
}

/// The same on a session that may have compiled it long ago.
async fn cost_on(client: &Client, statement: &str) -> (i64, i64) {
    for _ in 0..2 {
        client.query(statement, &[]).await.unwrap();
    }
    client.batch_execute("begin").await.unwrap();
    // Claims in order check parked events once per second; within this transaction, the first one does.
    client.query(statement, &[]).await.unwrap();
    let cost = explain::cheapest_of_three(client, statement).await.unwrap();
    if statement != STATUS {
        assert_eq!(cost.rows, Some(100.0), "the claim found what is due");
    }
    let scans = "select pg_stat_get_xact_numscans('m10_recovery.outbox'::regclass)";
    let scans: i64 = client.query_one(scans, &[]).await.unwrap().get(0);
    client.batch_execute("rollback").await.unwrap();
    (cost.pages, scans)
}

/// Claims of fresh events in this case, against claims with nothing else there.
async fn claims_cost_the_same(fill: &[(i32, &str, &str)]) {
    let (baseline, client) = database().await;
    insert_events(&client, 600, "", "").await;
    let (baseline, _) = cost(&baseline, CLAIM).await;

    let (database, client) = database().await;
    for (count, column, value) in fill {
        insert_events(&client, *count, column, value).await;
    }
    insert_events(&client, 600, "", "").await;
    let (pages, scans) = cost(&database, CLAIM).await;
    assert!(pages <= 2 * baseline, "{pages} pages, {baseline} in the baseline");
    assert_eq!(scans, 0, "the table was read from end to end");
}

#[tokio::test]
async fn a_claim_costs_the_same_with_500000_processed_events() {
    claims_cost_the_same(&[(500_000, "processed_at", "now()")]).await;
}

#[tokio::test]
async fn a_claim_costs_the_same_with_500000_events_that_are_not_due() {
    claims_cost_the_same(&[(
        500_000,
        "process_after",
        "now() + interval '1 hour' + i * interval '1 microsecond'",
    )])
    .await;
}

#[tokio::test]
async fn a_claim_costs_the_same_with_200000_events_that_others_hold() {
    claims_cost_the_same(&[(200_000, "claimed_at, claimed_by", "now(), 'another'")]).await;
}

#[tokio::test]
async fn a_claim_costs_no_more_when_everything_is_due_again_at_once() {
    let due = "now() - interval '1 hour' + i * interval '1 microsecond'";
    let (few, client) = database().await;
    insert_events(&client, 2_000, "retry_count, process_after", &format!("1, {due}")).await;
    let (few, _) = cost(&few, CLAIM).await;
    let (database, client) = database().await;
    insert_events(&client, 300_000, "retry_count, process_after", &format!("1, {due}")).await;
    let (pages, scans) = cost(&database, CLAIM).await;
    assert!(pages <= 2 * few, "{pages} pages with 300,000 due, {few} with 2,000");
    assert_eq!(scans, 0, "the table was read from end to end");
}

/// A claim in order on a session whose plans were made when the table was all but empty, beside this many behind a head that is not due.
async fn cost_in_order(behind: i32) -> (i64, i64) {
    let (database, client) = database().await;
    insert_events(&client, 3, "", "").await;
    client.query(IN_ORDER, &[]).await.unwrap();
    client.batch_execute("update m10_recovery.outbox set processed_at = now()").await.unwrap();
    let wait = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, process_after) \
                select 'order', 'hot', 'Changed', '{}', case when i = 0 then now() + interval '1 hour' end \
                from generate_series(0, $1) i";
    client.execute(wait, &[&behind]).await.unwrap();
    // Behind the last of every aggregate there are others, of the same type.
    let others = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, process_after) \
                  select 'order', 'z' || i, 'Changed', '{}', now() + interval '1 hour' from generate_series(1, $1) i";
    client.execute(others, &[&behind]).await.unwrap();
    insert_events(&client, 600, "", "").await;
    let cost = cost_on(&client, IN_ORDER).await;
    drop(database);
    cost
}

#[tokio::test]
async fn a_claim_in_order_costs_the_same_with_300000_events_that_wait_behind_one() {
    let (few, _) = cost_in_order(1_000).await;
    let (pages, scans) = cost_in_order(300_000).await;
    assert!(pages <= 2 * few, "{pages} pages with 300,000 that wait, {few} with 1,000");
    assert_eq!(scans, 0, "the table was read from end to end");
}

/// A statement beside this many aggregates of which the first event waits for its retry and another is parked behind it,
/// on a session whose plans were made when the table was all but empty.
async fn cost_beside_blocked_aggregates(blocked: i32, statement: &str) -> (i64, i64) {
    let (database, client) = database().await;
    insert_events(&client, 3, "", "").await;
    client.query(IN_ORDER, &[]).await.unwrap();
    let complete = "select * from symphony.complete_event_batch(array[1, 2, 3], array_fill('planner'::text, array[3]), \
                    array_fill(true, array[3]), p_with_next => true)";
    assert_eq!(client.query(complete, &[]).await.unwrap().len(), 3);
    let wait = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload, process_after) \
                select 'order', 'blocked-' || a, 'Changed', '{}', \
                       case when e = 1 then now() + interval '1 hour' else to_timestamp(0) end \
                from generate_series(1, 2) e, generate_series(1, $1) a";
    client.execute(wait, &[&blocked]).await.unwrap();
    insert_events(&client, 1_000, "", "").await;
    let cost = cost_on(&client, statement).await;
    drop(database);
    cost
}

#[tokio::test]
async fn claims_and_completions_in_order_cost_the_same_with_100000_blocked_aggregates() {
    for statement in [IN_ORDER, IN_ORDER_AND_COMPLETE] {
        let (few, _) = cost_beside_blocked_aggregates(10, statement).await;
        let (pages, scans) = cost_beside_blocked_aggregates(100_000, statement).await;
        assert!(pages <= 2 * few, "{pages} pages with 100,000 blocked aggregates, {few} with 10: {statement}");
        assert_eq!(scans, 0, "the table was read from end to end: {statement}");
    }
}

#[tokio::test]
async fn the_totals_never_look_at_processed_events() {
    for analysed in [false, true] {
        let (database, client) = database().await;
        insert_events(&client, 300_000, "processed_at", "now()").await;
        insert_events(&client, 200, "", "").await;
        insert_events(&client, 200, "process_after", "now() + interval '1 hour'").await;
        insert_events(&client, 200, "claimed_at, claimed_by", "now(), 'another'").await;
        if analysed {
            client.batch_execute("analyze m10_recovery.outbox").await.unwrap();
        }
        let (pages, scans) = cost(&database, STATUS).await;
        assert!(pages < 200, "{pages} pages, analysed: {analysed}");
        assert_eq!(scans, 0, "the table was read from end to end, analysed: {analysed}");
    }
}

/// A claim by sink beside this number of events of a sink at its limit: its pages, and those of one that finds nothing.
async fn cost_of_a_claim_by_sink(waiting: i32) -> (i64, i64) {
    const BY_SINK: &str = r#"select * from symphony.claim_events_by_sink('planner', 100, true, '[
        {"aggregate_type": "slow", "event_type": "*", "sink": "slow", "limit": 0},
        {"aggregate_type": "order", "event_type": "*", "sink": "quick", "limit": 100}]')"#;
    let (database, client) = database().await;
    let insert = "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload)
                  select 'slow', (i % 5000)::text, 'Placed', '{}' from generate_series(1, $1) i";
    client.execute(insert, &[&waiting]).await.unwrap();
    insert_events(&client, 600, "", "").await;
    let (pages, scans) = cost(&database, BY_SINK).await;
    assert_eq!(scans, 0, "the table was read from end to end");
    client.batch_execute("begin").await.unwrap();
    let nothing = explain::cheapest_of_three(&client, &BY_SINK.replace("100}]", "0}]")).await.unwrap();
    assert_eq!(nothing.rows, Some(0.0));
    (pages, nothing.pages)
}

#[tokio::test]
async fn a_claim_by_sink_reads_no_more_beside_any_backlog_of_a_sink_at_its_limit() {
    let (small, large) = (cost_of_a_claim_by_sink(30_000).await, cost_of_a_claim_by_sink(120_000).await);
    assert!(
        large.0 * 2 <= small.0 * 3 && large.1 * 2 <= small.1 * 3,
        "{small:?} pages, {large:?} beside four times as many"
    );
}
