//! What producers, workers and operators wait for: row and table locks that only the functions can reach, and never for long.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod key_registry;

use std::time::Duration;

use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait;
use tokio::time::timeout;
use tokio_postgres::{Client, Error};

/// A database with a plain rail, `plain`, and one with an in-flight limit of 5, `capped`.
async fn database() -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    client
        .batch_execute(
            "select symphony.register_payment_rail('plain', '{}', 'test', 'locks');
             select symphony.register_payment_rail('capped', '{\"max_in_flight\": 5}', 'test', 'locks')",
        )
        .await
        .unwrap();
    (database, client)
}

async fn enqueue(client: &Client, instruction: &str, rail: &str) -> Result<bool, Error> {
    let sql = "select replayed from symphony.enqueue_payment_outbox($1, $1, 'key', $2, '{\"amount\": 1.0}')";
    Ok(client.query_one(sql, &[&instruction, &rail]).await?.get(0))
}

async fn claim(client: &Client, size: i32) -> Vec<String> {
    let sql = "select instruction_id from symphony.claim_outbox_batch($1, 'worker', 60)";
    client.query(sql, &[&size]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn count(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.unwrap().get(0)
}

fn sqlstate<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().code().unwrap().code().to_owned()
}

/// Every number of an advisory lock that can be read in our sources, now or in an earlier version.
const LOCK_NUMBERS: [(&str, &str); 7] = [
    ("the wake-up of payments", "symphony.wakeup_lock_key('outbox_pending')"),
    ("the wake-up of events", "symphony.wakeup_lock_key('m10_outbox')"),
    ("the wake-up of metadata", "symphony.wakeup_lock_key('metadata_outbox')"),
    ("the install", "32503133266014062"),
    ("the rail policy", "hashtextextended('symphony.payment_rails', 7006)"),
    ("an idempotency key", "hashtextextended('key', hashtextextended('new', 7004))"),
    ("an entity", "hashtextextended('document-1', hashtextextended('document', 7008))"),
];

/// What producers, workers and operators call, each with what it needs. `failed` has failed, `leased` is leased by `worker`.
const CALLS: [(&str, &str); 14] = [
    ("enqueue", "select symphony.enqueue_payment_outbox('new', 'new', 'key', 'plain', '{}')"),
    (
        "enqueue a batch",
        "select symphony.enqueue_payment_outbox_batch('{new,newer}', '{new,new}', '{key,key}', '{plain,capped}', array['{}', '{}']::jsonb[])",
    ),
    ("claim", "select symphony.claim_outbox_batch(10, 'worker', 60)"),
    (
        "complete",
        "select symphony.complete_outbox_attempt(outbox_id, lease_token, 'worker', 'DISPATCHED')
         from symphony.payment_outbox_pending where instruction_id = 'leased'",
    ),
    ("repair", "select symphony.repair_expired_leases(10, 'worker')"),
    ("repair a rail", "select symphony.repair_payment_rail('plain', 'test', 'locks')"),
    ("make payments due", "select symphony.make_payments_due('plain', 'test', 'locks')"),
    (
        "redrive",
        "select symphony.redrive_payment_outbox(outbox_id, 'test', 'locks') from symphony.payment_outbox_dlq",
    ),
    (
        "resolve",
        "select symphony.resolve_payment_outbox(outbox_id, 'SKIPPED', 'test', 'locks') from symphony.payment_outbox_dlq",
    ),
    (
        "erase",
        "select symphony.resolve_payment_outbox(outbox_id, 'SKIPPED', 'test', 'locks'),
                symphony.erase_payment_payload(outbox_id, 'test', 'locks')
         from symphony.payment_outbox_dlq",
    ),
    ("pause", "select symphony.pause_payment_rail('plain', 'test', 'locks')"),
    ("set a rail", "select symphony.set_payment_rail('plain', '{\"max_attempts\": 3}', 'test', 'locks')"),
    ("create an entry of metadata", "select symphony.create_metadata_entry('document', 'document-1', '{}')"),
    ("publish an event", "select m10_recovery.publish_outbox('order', '1', 'order.paid', '{}')"),
];

#[tokio::test]
async fn a_session_that_holds_every_advisory_lock_of_our_sources_blocks_no_call() {
    let (database, client) = database().await;
    for instruction in ["failed", "leased"] {
        enqueue(&client, instruction, "plain").await.unwrap();
    }
    assert_eq!(claim(&client, 10).await, ["failed", "leased"]);
    let fail = "select symphony.complete_outbox_attempt(outbox_id, lease_token, 'worker', 'FAILED', p_error_code => 'REJECTED')
                from symphony.payment_outbox_pending where instruction_id = 'failed'";
    client.execute(fail, &[]).await.unwrap();
    enqueue(&client, "due", "plain").await.unwrap();
    let outsider = database.connect_as_login(&[]).await.unwrap();
    for (what, number) in LOCK_NUMBERS {
        // A login without a right knows the numbers, not the function.
        let number: i64 = client.query_one(&format!("select {number}"), &[]).await.unwrap().get(0);
        let took = outsider.query_one("select pg_try_advisory_lock($1)", &[&number]).await.unwrap();
        assert!(took.get::<_, bool>(0), "{what}");
    }

    client.batch_execute("set statement_timeout = '2s'").await.unwrap();
    for (what, call) in CALLS {
        client.batch_execute("begin").await.unwrap();
        let rows = client.query(call, &[]).await.unwrap_or_else(|error| panic!("{what}: {error:?}"));
        assert!(what == "repair" || !rows.is_empty(), "{what} did nothing");
        client.batch_execute("rollback").await.unwrap();
    }

    // Without the outsider the calls take no other number: one that is not in the list would be missed above.
    outsider.batch_execute("select pg_advisory_unlock_all()").await.unwrap();
    for (what, call) in CALLS {
        client.batch_execute("begin").await.unwrap();
        client.query(call, &[]).await.unwrap();
        let others = "select count(*) from pg_locks l
                      where l.pid = pg_backend_pid() and l.locktype = 'advisory' and (l.classid::bigint << 32 | l.objid::bigint) not in (
                        select w.number from unnest(array['outbox_pending', 'm10_outbox', 'metadata_outbox']) as c (name),
                          lateral (select symphony.wakeup_lock_key(c.name)) as w (number))";
        assert_eq!(count(&client, others).await, 0, "{what} takes an advisory lock besides the wake-up lock");
        client.batch_execute("rollback").await.unwrap();
    }
}

#[tokio::test]
async fn no_runtime_login_can_lock_the_tables_that_calls_wait_for() {
    let (database, _client) = database().await;
    let roles =
        ["symphony_ingest", "symphony_executor", "symphony_operator", "symphony_readonly", "symphony_auditor"];
    let login = database.connect_as_login(&roles).await.unwrap();
    for relation in [
        "payment_rails",
        "payment_rail_policies",
        "payment_outbox_keys",
        "participant_outbox_sequences",
        "metadata_entities",
    ] {
        for mode in ["row share", "row exclusive", "share", "exclusive", "access exclusive"] {
            let lock = format!("begin; lock table symphony.{relation} in {mode} mode");
            assert_eq!(sqlstate(login.batch_execute(&lock).await), "42501", "{relation} in {mode} mode");
            login.batch_execute("rollback").await.unwrap();
        }
    }
}

#[tokio::test]
async fn the_refusal_of_a_policy_change_says_how_to_find_the_worker_that_blocks_it() {
    let (database, client) = database().await;
    let worker = database.connect().await.unwrap();
    worker.batch_execute("begin").await.unwrap();
    let pid: i32 = worker.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    assert!(claim(&worker, 1).await.is_empty());
    let refused =
        client.execute("select symphony.pause_payment_rail('plain', 'test', 'locks')", &[]).await.unwrap_err();
    let refused = refused.as_db_error().unwrap();
    assert_eq!(refused.code().code(), "55P03");
    let hint = refused.hint().unwrap();
    let (_, find) = hint.split_once("Find it with: ").unwrap();
    let (find, _) = find.split_once(';').unwrap();
    let found: Vec<i32> = client.query(find, &[]).await.unwrap().iter().map(|row| row.get("pid")).collect();
    assert_eq!(found, [pid], "{find}");
}

#[tokio::test]
async fn a_claim_skips_a_limited_rail_that_an_open_claim_has_locked() {
    let (database, client) = database().await;
    enqueue(&client, "held", "capped").await.unwrap();
    let holder = database.connect().await.unwrap();
    holder.batch_execute("begin").await.unwrap();
    assert_eq!(claim(&holder, 1).await, ["held"]);
    enqueue(&client, "waiting", "capped").await.unwrap();
    // A wait of seconds would be an error here.
    client.batch_execute("set statement_timeout = '2s'").await.unwrap();
    assert!(claim(&client, 10).await.is_empty(), "nothing but the rail that is held");
    enqueue(&client, "next", "plain").await.unwrap();
    assert_eq!(claim(&client, 10).await, ["next"]);
    holder.batch_execute("commit").await.unwrap();
    assert_eq!(claim(&client, 10).await, ["waiting"]);
}

#[tokio::test]
async fn a_claim_that_finds_nothing_else_waits_for_the_claim_before_it() {
    let (database, client) = database().await;
    for instruction in ["first", "second"] {
        enqueue(&client, instruction, "capped").await.unwrap();
    }
    let holder = database.connect().await.unwrap();
    holder.batch_execute("begin").await.unwrap();
    assert_eq!(claim(&holder, 1).await, ["first"]);
    let second = database.connect().await.unwrap();
    let pid: i32 = second.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let claims = tokio::spawn(async move { claim(&second, 1).await });
    let waits = "select exists (select from pg_stat_activity where pid = $1 and wait_event_type = 'Lock')";
    while !client.query_one(waits, &[&pid]).await.unwrap().get::<_, bool>(0) {
        assert!(!claims.is_finished(), "the second claim went away with nothing, and did not wait");
    }
    holder.batch_execute("commit").await.unwrap();
    assert_eq!(claims.await.unwrap(), ["second"]);
}

#[tokio::test]
async fn concurrent_claims_of_a_limited_rail_reach_its_in_flight_limit() {
    let (database, client) = database().await;
    client
        .batch_execute("select symphony.set_payment_rail('capped', '{\"max_in_flight\": 1000}', 'test', 'locks')")
        .await
        .unwrap();
    for instruction in 0..200 {
        enqueue(&client, &format!("{instruction}"), "capped").await.unwrap();
    }
    let mut workers = Vec::new();
    for _ in 0..8 {
        let session = database.connect().await.unwrap();
        workers.push(tokio::spawn(async move {
            let mut claimed = 0;
            // The first empty claim ends a worker, as it would let a relayer go idle.
            loop {
                let batch = claim(&session, 5).await.len();
                if batch == 0 {
                    return claimed;
                }
                claimed += batch;
            }
        }));
    }
    let mut claimed = 0;
    for worker in workers {
        claimed += timeout(wait::DEFAULT_TIMEOUT, worker).await.unwrap().unwrap();
    }
    assert_eq!(claimed, 200);
}

#[tokio::test]
async fn a_session_that_holds_the_wake_up_lock_costs_latency_and_no_work() {
    for mode in ["pg_advisory_lock", "pg_advisory_lock_shared"] {
        let (database, client) = database().await;
        let outsider = database.connect_as_login(&[]).await.unwrap();
        let number: i64 =
            client.query_one("select symphony.wakeup_lock_key('outbox_pending')", &[]).await.unwrap().get(0);
        outsider.execute(&format!("select {mode}($1)"), &[&number]).await.unwrap();

        // A relayer that wants to go idle is answered within its timeout, even while another session holds the lock.
        let relayer = database.connect_as("symphony_executor").await.unwrap();
        let arm = "select symphony.acquire_wakeup_lock('outbox_pending', 50)";
        let armed = timeout(Duration::from_secs(10), relayer.query_one(arm, &[])).await.unwrap().unwrap();
        let expected = if mode == "pg_advisory_lock" { "SHARED" } else { "NOT_YET" };
        assert_eq!(armed.get::<_, &str>(0), expected, "{mode}");

        // Producers do not wait for it, and what they commit is there for the next poll.
        client.batch_execute("set statement_timeout = '2s'").await.unwrap();
        enqueue(&client, "one", "plain").await.unwrap();
        assert_eq!(claim(&relayer, 10).await, ["one"], "{mode}");
        outsider.execute("select pg_advisory_unlock_all()", &[]).await.unwrap();
    }
}

#[tokio::test]
async fn versions_of_an_entity_follow_the_commits_whatever_the_isolation() {
    let (database, client) = database().await;
    let create = "select symphony.create_metadata_entry('document', 'one', '{}')";
    client.execute(create, &[]).await.unwrap();
    for isolation in ["repeatable read", "serializable"] {
        let late = database.connect_as("symphony_ingest").await.unwrap();
        late.batch_execute(&format!("begin isolation level {isolation}; select 1")).await.unwrap();
        client.execute(create, &[]).await.unwrap();
        assert_eq!(sqlstate(late.execute(create, &[]).await), "40001", "{isolation}");
    }
    // The newest version is remembered after its entry has gone.
    let ahead = "update symphony.metadata_entities set newest_version = now() + interval '1 day'";
    client.batch_execute(ahead).await.unwrap();
    client.execute(create, &[]).await.unwrap();
    let ahead = "select count(*) from symphony.metadata_outbox where created_at > now() + interval '23 hours'";
    assert_eq!(count(&client, ahead).await, 1);
}
