//! Regression tests of the payment lane: each test was once a bug.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use symphony_testkit::test_database::{Database, Server};
use tokio_postgres::{Client, Error};

async fn database(rail: &str) -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    let register = "select symphony.register_payment_rail('rail', $1::text::jsonb, 'test', 'edges')";
    client.execute(register, &[&rail]).await.unwrap();
    (database, client)
}

async fn enqueue(client: &Client, participant: &str, instruction: &str) {
    let sql = "select from symphony.enqueue_payment_outbox($1, $2, 'key', 'rail', '{\"amount\": 1.0}')";
    client.execute(sql, &[&instruction, &participant]).await.unwrap();
}

/// Claims and returns the instructions.
async fn claim(client: &Client, size: i32) -> Vec<String> {
    let sql = "select instruction_id from symphony.claim_outbox_batch($1, 'worker', 60)";
    client.query(sql, &[&size]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn expire(client: &Client) {
    let sql = "update symphony.payment_outbox_pending set lease_expires_at = clock_timestamp() where lease_token is not null";
    client.execute(sql, &[]).await.unwrap();
}

/// Completes the lease of `worker` on an instruction.
async fn complete(client: &Client, instruction: &str, outcome: &str) -> Result<u64, Error> {
    let sql =
        "select symphony.complete_outbox_attempt(p.outbox_id, p.lease_token, 'worker', $2::text::symphony.outbox_attempt_state, p_error_code => $3)
               from symphony.payment_outbox_pending p
               where p.instruction_id = $1";
    let (state, code) = outcome.split_once(' ').map_or((outcome, None), |(state, code)| (state, Some(code)));
    client.execute(sql, &[&instruction, &state, &code]).await
}

fn sqlstate<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    result.unwrap_err().code().unwrap().code().to_owned()
}

#[tokio::test]
async fn claims_that_end_expired_leases_do_not_deadlock() {
    let (database, client) = database(r#"{"ordered": true, "max_attempts": 1}"#).await;
    let mut workers = Vec::new();
    for worker in 0..6 {
        let session = database.connect().await.unwrap();
        workers.push(tokio::spawn(async move {
            for round in 0..120 {
                for participant in 0..4 {
                    enqueue(&session, &format!("p{participant}"), &format!("{worker}-{round}-{participant}")).await;
                }
                // A deadlock would be an error here.
                claim(&session, 2).await;
                let expire = "update symphony.payment_outbox_pending set lease_expires_at = now() where ctid = any (array(
                                select ctid from symphony.payment_outbox_pending where lease_token is not null for update skip locked))";
                session.execute(expire, &[]).await.unwrap();
            }
        }));
    }
    for worker in workers {
        worker.await.unwrap();
    }
    // Nothing is stranded either.
    loop {
        expire(&client).await;
        if claim(&client, 1000).await.is_empty() {
            break;
        }
    }
    let left = client.query_one("select count(*) from symphony.payment_outbox_pending", &[]).await.unwrap();
    assert_eq!(left.get::<_, i64>(0), 0);
}

#[tokio::test]
async fn a_batch_whose_arrays_do_not_begin_at_one_is_refused() {
    let (_database, client) = database("{}").await;
    for arrays in [
        "'[0:1]={i,i}', '[0:1]={p,p}', '[0:1]={k,k}', '[0:1]={rail,rail}', '[0:1]={\"{}\",\"{}\"}'",
        "'{{i,j}}', '{{p,p}}', '{{k,k}}', '{{rail,rail}}', '{{\"{}\",\"{}\"}}'",
    ] {
        let sql = format!("select symphony.enqueue_payment_outbox_batch({arrays})");
        assert_eq!(sqlstate(client.execute(&sql, &[]).await), "P7005");
    }
}

#[tokio::test]
async fn a_participant_whose_head_is_being_completed_does_not_block_the_others() {
    let (database, client) = database(r#"{"ordered": true}"#).await;
    enqueue(&client, "many", "head").await;
    assert_eq!(claim(&client, 1).await, ["head"]);
    let more = "select symphony.enqueue_payment_outbox('more-' || i, 'many', 'key', 'rail', '{}') from generate_series(1, 1100) i";
    client.execute(more, &[]).await.unwrap();
    enqueue(&client, "other", "next").await;

    let completing = database.connect().await.unwrap();
    completing.batch_execute("begin").await.unwrap();
    complete(&completing, "head", "DISPATCHED").await.unwrap();
    assert_eq!(claim(&client, 10).await, ["next"]);
    completing.batch_execute("commit").await.unwrap();
    assert_eq!(claim(&client, 10).await, ["more-1"]);
}

#[tokio::test]
async fn an_idle_transaction_of_an_operator_has_a_timeout_of_5_seconds() {
    let (_database, client) = database("{}").await;
    client.batch_execute("begin; select symphony.pause_payment_rail('rail', 'test', 'edges')").await.unwrap();
    let limit = client.query_one("show idle_in_transaction_session_timeout", &[]).await.unwrap();
    assert_eq!(limit.get::<_, &str>(0), "5s");
}

#[tokio::test]
async fn a_late_renewal_is_refused_and_takes_no_in_flight_slot() {
    let (database, client) = database(r#"{"max_in_flight": 1}"#).await;
    for instruction in ["one", "two"] {
        enqueue(&client, instruction, instruction).await;
    }
    assert_eq!(claim(&client, 5).await, ["one"]);
    let late = database.connect().await.unwrap();
    late.batch_execute("begin; select now()").await.unwrap();
    expire(&client).await;
    let renew = "select r.lease_expires_at is not null
                 from symphony.payment_outbox_pending p
                 cross join lateral symphony.renew_outbox_leases(array[p.outbox_id], array[p.lease_token], 'worker', 60) r
                 where p.instruction_id = 'one'";
    assert!(
        !late.query_one(renew, &[]).await.unwrap().get::<_, bool>(0),
        "by its own clock the lease still lives"
    );
    late.batch_execute("commit").await.unwrap();
    assert_eq!(claim(&client, 5).await.len(), 1);
}

#[tokio::test]
async fn a_duplicate_sequence_number_is_not_reported_as_a_replay() {
    let (_database, client) = database("{}").await;
    enqueue(&client, "p", "one").await;
    client.batch_execute("update symphony.participant_outbox_sequences set next_sequence_id = 1").await.unwrap();
    let again = "select symphony.enqueue_payment_outbox('two', 'p', 'key', 'rail', '{}')";
    assert_eq!(sqlstate(client.execute(again, &[]).await), "23505");
    let batch =
        "select symphony.enqueue_payment_outbox_batch('{two}', '{p}', '{key}', '{rail}', array['{}'::jsonb])";
    assert_eq!(sqlstate(client.execute(batch, &[]).await), "23505");
}

#[tokio::test]
async fn a_row_that_has_ended_already_does_not_stop_the_others() {
    let (_database, client) = database("{}").await;
    enqueue(&client, "p", "ended").await;
    assert_eq!(claim(&client, 1).await, ["ended"]);
    client
        .batch_execute(
            "insert into symphony.payment_outbox_attempts
               (attempt_id, outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no,
                state, claimed_at, worker_id, created_at)
             select gen_random_uuid(), outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, 1,
                    'DISPATCHED', claimed_at, 'by hand', created_at
             from symphony.payment_outbox_pending",
        )
        .await
        .unwrap();
    enqueue(&client, "p", "ends").await;
    assert_eq!(claim(&client, 1).await, ["ends"]);
    let both = "select string_agg(coalesce(c.refusal, c.state::text), ' ' order by c.position)
                from (select array_agg(outbox_id order by sequence_id) ids, array_agg(lease_token order by sequence_id) tokens
                      from symphony.payment_outbox_pending) p,
                     symphony.complete_outbox_batch(p.ids, p.tokens, 'worker', '{DISPATCHED,DISPATCHED}') c";
    let answers: String = client.query_one(both, &[]).await.unwrap().get(0);
    assert_eq!(answers, "P7001 DISPATCHED");

    expire(&client).await;
    enqueue(&client, "p", "due").await;
    assert_eq!(claim(&client, 10).await, ["due"]);
    let repaired =
        client.execute("select from symphony.repair_expired_leases(10, 'repairer')", &[]).await.unwrap();
    assert_eq!(repaired, 0);
}

#[tokio::test]
async fn a_claim_fills_its_batch_after_it_has_ended_expired_leases() {
    let (_database, client) = database(r#"{"max_attempts": 1}"#).await;
    for instruction in ["zombie", "due"] {
        enqueue(&client, instruction, instruction).await;
    }
    assert_eq!(claim(&client, 1).await, ["zombie"]);
    expire(&client).await;
    assert_eq!(claim(&client, 1).await, ["due"]);
}

#[tokio::test]
async fn a_worker_cannot_report_an_outcome_of_the_database() {
    let (_database, client) = database("{}").await;
    enqueue(&client, "p", "one").await;
    assert_eq!(claim(&client, 1).await, ["one"]);
    for outcome in ["RETRYABLE LEASE_EXPIRED", "FAILED OUTCOME_UNKNOWN ", "FAILED  "] {
        assert_eq!(sqlstate(complete(&client, "one", outcome).await), "P7005", "{outcome:?}");
    }
}

#[tokio::test]
async fn what_identifies_a_row_cannot_change_by_a_zero_nor_a_rail_its_name() {
    let (_database, client) = database("{}").await;
    enqueue(&client, "p", "one").await;
    let zero = "update symphony.payment_outbox_pending set payload = '{\"amount\": 1.00}'";
    assert_eq!(sqlstate(client.execute(zero, &[]).await), "P0001");
    let name = "update symphony.payment_rails set rail_type = 'other'";
    assert_eq!(sqlstate(client.execute(name, &[]).await), "P0001");
}

#[tokio::test]
async fn nonsense_in_the_sessions_settings_does_not_stop_a_claim() {
    let (_database, client) = database("{}").await;
    enqueue(&client, "p", "one").await;
    client
        .batch_execute("set symphony.claim_low_watermarks = 'nonsense'; set symphony.traceparent = 'nonsense'")
        .await
        .unwrap();
    assert_eq!(claim(&client, 1).await, ["one"]);
}

#[tokio::test]
async fn nonsense_in_the_sessions_settings_does_not_stop_a_claim_of_events_in_order() {
    let (_database, client) = database("{}").await;
    client.execute("select m10_recovery.publish_outbox('order', 'o-1', 'Changed', '{}')", &[]).await.unwrap();
    client.batch_execute("set symphony.checked_parked_events = 'nonsense'").await.unwrap();
    let claimed = client.query("select from symphony.claim_events_in_order('worker', 10, 0)", &[]).await.unwrap();
    assert_eq!(claimed.len(), 1);
}

#[tokio::test]
async fn a_lease_survives_a_crash_whatever_the_session_was_set_to() {
    let (_database, client) = database("{}").await;
    enqueue(&client, "p", "one").await;
    client.batch_execute("set synchronous_commit = off; begin").await.unwrap();
    assert_eq!(claim(&client, 1).await, ["one"]);
    let setting = client.query_one("show synchronous_commit", &[]).await.unwrap();
    assert_eq!(setting.get::<_, &str>(0), "local");
}

#[tokio::test]
async fn a_claim_does_not_wait_for_a_transaction_that_has_updated_a_head_twice() {
    let (database, client) = database(r#"{"ordered": true}"#).await;
    enqueue(&client, "many", "head").await;
    enqueue(&client, "many", "second").await;
    enqueue(&client, "other", "next").await;
    // The head has a newer version that is locked harder than a lock on the older one would suggest.
    let holder = database.connect().await.unwrap();
    holder.batch_execute("begin").await.unwrap();
    let hold = "update symphony.payment_outbox_pending set next_attempt_at = next_attempt_at where instruction_id = 'head'";
    holder.batch_execute(hold).await.unwrap();
    let lock = "select from symphony.payment_outbox_pending where instruction_id = 'head' for update";
    holder.batch_execute(lock).await.unwrap();

    // A wait would end as a refusal.
    client.batch_execute("set lock_timeout = '2s'").await.unwrap();
    assert_eq!(claim(&client, 10).await, ["next"]);
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(claim(&client, 10).await, ["head"]);
}

#[tokio::test]
async fn a_worker_call_times_out_behind_a_lock() {
    let (database, client) = database("{}").await;
    enqueue(&client, "p", "i").await;
    assert_eq!(claim(&client, 1).await, ["i"]);
    let holder = database.connect().await.unwrap();
    holder
        .batch_execute("begin; lock table symphony.payment_outbox_pending in access exclusive mode")
        .await
        .unwrap();
    let sql = "select from symphony.claim_outbox_batch(1, 'worker', 60)";
    assert_eq!(sqlstate(client.execute(sql, &[]).await), "55P03");
    holder.batch_execute("rollback").await.unwrap();
    assert_eq!(complete(&client, "i", "DISPATCHED").await.unwrap(), 1);
}

#[tokio::test]
async fn a_row_that_becomes_claimable_without_an_insert_notifies_idle_relayers() {
    let (database, client) = database(r#"{"ordered": true, "max_in_flight": 1}"#).await;
    let (says, mut received) = tokio::sync::mpsc::unbounded_channel();
    let sleeper =
        database.target().connect_with_messages(move |_| says.send(()).unwrap_or_default()).await.unwrap();
    sleeper
        .batch_execute(
            "listen outbox_pending; select pg_advisory_lock(symphony.wakeup_lock_key('outbox_pending'))",
        )
        .await
        .unwrap();
    enqueue(&client, "p", "first").await;
    enqueue(&client, "p", "second").await;
    assert_eq!(claim(&client, 10).await, ["first"]);
    assert_eq!(received.recv().await, Some(()));
    assert_eq!(received.recv().await, Some(()));
    // The end of the head, a released lease, a resumed rail.
    complete(&client, "first", "DISPATCHED").await.unwrap();
    assert_eq!(received.recv().await, Some(()));
    assert_eq!(claim(&client, 10).await, ["second"]);
    let release = "select symphony.release_outbox_leases(array[outbox_id], array[lease_token], 'worker')
                   from symphony.payment_outbox_pending";
    client.execute(release, &[]).await.unwrap();
    assert_eq!(received.recv().await, Some(()));
    client.batch_execute("select symphony.pause_payment_rail('rail', 'test', 'edges')").await.unwrap();
    client.batch_execute("select symphony.resume_payment_rail('rail', 'test', 'edges')").await.unwrap();
    assert_eq!(received.recv().await, Some(()));
}

#[tokio::test]
async fn a_completion_that_waits_for_a_renewal_is_recorded() {
    let (database, client) = database("{}").await;
    enqueue(&client, "p", "one").await;
    assert_eq!(claim(&client, 1).await, ["one"]);
    let renewing = database.connect().await.unwrap();
    renewing.batch_execute("begin").await.unwrap();
    let renew = "select symphony.renew_outbox_leases(array[outbox_id], array[lease_token], 'worker', 600)
                 from symphony.payment_outbox_pending";
    renewing.execute(renew, &[]).await.unwrap();

    let ending = database.connect().await.unwrap();
    let ended = tokio::spawn(async move { complete(&ending, "one", "DISPATCHED").await });
    let waits = "select exists (select from pg_stat_activity
                                where datname = current_database() and wait_event_type = 'Lock')";
    while !client.query_one(waits, &[]).await.unwrap().get::<_, bool>(0) {
        tokio::task::yield_now().await;
    }
    renewing.batch_execute("commit").await.unwrap();
    assert_eq!(ended.await.unwrap().unwrap(), 1);
    let left = "select (select count(*) from symphony.payment_outbox_pending), (select count(*) from symphony.payment_outbox_attempts)";
    let left = client.query_one(left, &[]).await.unwrap();
    assert_eq!((left.get::<_, i64>(0), left.get::<_, i64>(1)), (0, 1));
}

#[tokio::test]
async fn a_mixed_completion_and_a_renewal_of_the_same_leases_do_not_deadlock() {
    let (database, client) = database("{}").await;
    enqueue(&client, "p", "first").await;
    enqueue(&client, "p", "second").await;
    assert_eq!(claim(&client, 2).await, ["first", "second"]);
    // A renewal locks rows one after the other. It has the first; the completion needs both.
    let renewing = database.connect().await.unwrap();
    renewing.batch_execute("begin").await.unwrap();
    let renew = "select lease_expires_at is not null
                 from symphony.renew_outbox_leases(
                   array(select outbox_id from symphony.payment_outbox_pending where instruction_id = $1),
                   array(select lease_token from symphony.payment_outbox_pending where instruction_id = $1), 'worker', 600)";
    assert!(renewing.query_one(renew, &[&"first"]).await.unwrap().get::<_, bool>(0));

    let ending = database.connect().await.unwrap();
    let ended = tokio::spawn(async move {
        let complete = "select count(*) filter (where c.refusal is null)
                        from (select array_agg(outbox_id order by outbox_id) as ids, array_agg(lease_token order by outbox_id) as tokens
                              from symphony.payment_outbox_pending) p
                        cross join lateral symphony.complete_outbox_batch(p.ids, p.tokens, 'worker', '{RETRYABLE,DISPATCHED}') c";
        ending.query_one(complete, &[]).await.map(|row| row.get::<_, i64>(0))
    });
    let waits = "select exists (select from pg_stat_activity
                                where datname = current_database() and wait_event_type = 'Lock')";
    while !client.query_one(waits, &[]).await.unwrap().get::<_, bool>(0) {
        tokio::task::yield_now().await;
    }
    assert!(renewing.query_one(renew, &[&"second"]).await.unwrap().get::<_, bool>(0));
    renewing.batch_execute("commit").await.unwrap();
    assert_eq!(ended.await.unwrap().unwrap(), 2);
}

#[tokio::test]
async fn a_claim_returns_rows_in_claim_order_also_where_that_is_not_the_order_of_their_ids() {
    let (_database, client) = database("{}").await;
    for instruction in ["first", "second", "third"] {
        enqueue(&client, "p", instruction).await;
    }
    let later = "update symphony.payment_outbox_pending
                 set next_attempt_at = now() - case instruction_id when 'third' then interval '3 s' when 'second' then interval '2 s' else '1 s' end";
    client.execute(later, &[]).await.unwrap();
    assert_eq!(claim(&client, 3).await, ["third", "second", "first"]);
}
