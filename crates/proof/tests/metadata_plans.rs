//! Pages that a claim, a completion, a create, a repair and the totals of metadata read on large tables without statistics.
//!
//! Pages are counted rather than milliseconds, because their number is the same on every machine.
#![expect(clippy::unwrap_used, reason = "a test that cannot ask the database has failed")]

use symphony_testkit::{
    explain,
    test_database::{Database, Server},
};
use tokio_postgres::Client;

/// A claim of 100, each ended like this.
macro_rules! claim_and_complete {
    ($outcome:literal) => {
        concat!(
            "select r.* \
             from (select array_agg(c.id) as ids, array_agg(c.claim_token) as tokens, array_agg('",
            $outcome,
            "'::text) as outcomes, array_agg('away'::text) as errors \
                   from symphony.claim_metadata_batch('planner', 100) c) c, \
                  symphony.complete_metadata_batch(c.ids, c.tokens, c.outcomes, c.errors) r \
             where r.refusal is null"
        )
    };
}

const CLAIM: &str = "select * from symphony.claim_metadata_batch('planner', 100)";
const CLAIM_AND_PUBLISH: &str = claim_and_complete!("PUBLISHED");
const CLAIM_AND_FAIL: &str = claim_and_complete!("FAILED");
const REPAIR: &str = "select * from symphony.repair_metadata_entries()";
const CREATE: &str = "select symphony.create_metadata_entry('document', 'document-7', '{}')";
const DUE: &str = "select symphony.next_metadata_due()";
const STATUS: &str = "select * from symphony.metadata_outbox_status";

/// Columns and values of an entry in a status; rows are inserted past the status machine.
const PENDING: (&str, &str) = ("status", "'PENDING'");
const PUBLISHED: (&str, &str) = ("status, processed_at", "'PUBLISHED', now()");
const DEAD: (&str, &str) = ("status, last_error", "'DLQ', 'dead'");
const HELD: (&str, &str) = (
    "status, claim_token, claimed_by, processing_started_at",
    "'PROCESSING', gen_random_uuid(), 'another', now()",
);
const SCHEDULED: (&str, &str) = (
    "status, retry_count, last_error, next_retry_at",
    "'FAILED', 1, 'away', now() + interval '1 hour' + i * interval '1 microsecond'",
);

async fn database(groups: &[(i32, (&str, &str))]) -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    client
        .batch_execute(
            "alter table symphony.metadata_outbox set (autovacuum_enabled = off);
             alter table symphony.metadata_outbox disable trigger user",
        )
        .await
        .unwrap();
    fill(&client, groups).await;
    client
        .batch_execute(
            "alter table symphony.metadata_outbox enable always trigger metadata_status_moves_are_legal",
        )
        .await
        .unwrap();
    (database, client)
}

async fn fill(client: &Client, groups: &[(i32, (&str, &str))]) {
    for (count, (columns, values)) in groups {
        let insert = format!(
            "insert into symphony.metadata_outbox (id, entity_type, entity_id, metadata, max_retries, created_at, updated_at, {columns}) \
             select gen_random_uuid(), 'document', 'document-' || i, '{{}}', 20, clock_timestamp(), now(), {values} from generate_series(1, $1) i"
        );
        client.execute(&insert, &[count]).await.unwrap();
    }
}

/// What a statement took, once the session has compiled it: pages, and whether it read the table from end to end.
async fn cost(database: &Database, statement: &str) -> (i64, i64) {
    let client = database.connect().await.unwrap();
    for _ in 0..2 {
        client.query(statement, &[]).await.unwrap();
    }
    cost_on(&client, statement).await
}

async fn cost_on(client: &Client, statement: &str) -> (i64, i64) {
    client.batch_execute("begin").await.unwrap();
    let cost = explain::cheapest_of_three(client, statement).await.unwrap();
    if [CLAIM, CLAIM_AND_PUBLISH, CLAIM_AND_FAIL].contains(&statement) {
        assert_eq!(cost.rows, Some(100.0), "the claim found what is due");
    }
    let scans = "select pg_stat_get_xact_numscans('symphony.metadata_outbox'::regclass)";
    let scans: i64 = client.query_one(scans, &[]).await.unwrap().get(0);
    client.batch_execute("rollback").await.unwrap();
    (cost.pages, scans)
}

#[tokio::test]
async fn claiming_completing_creating_and_repairing_cost_the_same_beside_200000_entries() {
    let (baseline, _client) = database(&[(600, PENDING)]).await;
    let groups = [(100_000, PUBLISHED), (60_000, SCHEDULED), (20_000, HELD), (20_000, DEAD), (600, PENDING)];
    let (large, _client) = database(&groups).await;
    for statement in [CLAIM, CLAIM_AND_PUBLISH, CREATE, REPAIR, DUE] {
        let (few, _) = cost(&baseline, statement).await;
        let (pages, scans) = cost(&large, statement).await;
        // A deeper index costs a page or two for each row that is found by it.
        assert!(pages <= 2 * few + 20, "{statement}: {pages} pages, {few} with few rows");
        assert_eq!(scans, 0, "{statement}: the table was read from end to end");
    }
}

#[tokio::test]
async fn entries_are_completed_by_their_ids_though_the_plan_was_made_for_a_table_of_one() {
    for statement in [CLAIM_AND_PUBLISH, CLAIM_AND_FAIL] {
        let (database, client) = database(&[(1, PENDING)]).await;
        let early = database.connect().await.unwrap();
        assert_eq!(early.query(statement, &[]).await.unwrap().len(), 1);
        fill(&client, &[(20_000, HELD), (600, PENDING)]).await;
        let (late, _) = cost(&database, statement).await;
        let (pages, scans) = cost_on(&early, statement).await;
        assert!(pages <= 2 * late, "{statement}: {pages} pages, {late} with a plan that was made later");
        assert_eq!(scans, 0, "{statement}: the table was read from end to end");
    }
}

#[tokio::test]
async fn the_totals_never_look_at_published_entries() {
    let (database, client) =
        database(&[(100_000, PUBLISHED), (200, PENDING), (200, SCHEDULED), (200, HELD), (200, DEAD)]).await;
    for analysed in [false, true] {
        if analysed {
            client.batch_execute("analyze symphony.metadata_outbox").await.unwrap();
        }
        let (pages, scans) = cost(&database, STATUS).await;
        assert!(pages < 400, "{pages} pages, analysed: {analysed}");
        assert_eq!(scans, 0, "the table was read from end to end, analysed: {analysed}");
    }
}
