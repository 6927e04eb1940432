//! The registry of idempotency keys: its primary key decides between concurrent producers, without an advisory lock.

use std::sync::Arc;

use tokio::sync::Barrier;
use tokio_postgres::{Client, Error};

use super::{claim, count, database, enqueue, sqlstate};

/// A batch of 500, numbered from `first`, in the order given or the other way round.
async fn enqueue_batch(client: &Client, first: i32, forwards: bool) -> Result<i64, Error> {
    let order = if forwards { "i" } else { "-i" };
    let sql = format!(
        "select count(*) filter (where not b.replayed)
         from (select array_agg('i-' || i order by {order}) as names, array_agg('p-' || i % 100 order by {order}) as participants,
                      array_agg('plain'::text) as rails, array_agg('{{\"amount\": 1}}'::jsonb) as payloads
               from generate_series($1::int4, $1 + 499) i) g,
              symphony.enqueue_payment_outbox_batch(g.names, g.participants, g.names, g.rails, g.payloads) b"
    );
    Ok(client.query_one(&sql, &[&first]).await?.get(0))
}

#[tokio::test]
async fn a_hundred_thousand_enqueues_in_one_transaction_work_beside_claims_and_completions() {
    let (database, client) = database().await;
    for instruction in 0..200 {
        enqueue(&client, &format!("due-{instruction}"), "plain").await.unwrap();
    }
    let payroll = database.connect_as("symphony_ingest").await.unwrap();
    payroll.batch_execute("begin").await.unwrap();
    let worker = database.connect_as("symphony_executor").await.unwrap();
    let mut completed = 0;
    for batch in 0..198 {
        assert_eq!(enqueue_batch(&payroll, batch * 500, true).await.unwrap(), 500);
        let complete = "select count(d.*)
                        from symphony.claim_outbox_batch(1, 'worker', 60) c,
                             symphony.complete_outbox_attempt(c.outbox_id, c.lease_token, 'worker', 'DISPATCHED') d";
        completed += count(&worker, complete).await;
    }
    for instruction in 0..1_000 {
        enqueue(&payroll, &format!("single-{instruction}"), "plain").await.unwrap();
    }
    assert_eq!(completed, 198, "what others had due was claimed and completed meanwhile");
    let pid: i32 = payroll.query_one("select pg_backend_pid()", &[]).await.unwrap().get(0);
    let locks = "select count(*) from pg_locks where pid = $1";
    let locks: i64 = client.query_one(locks, &[&pid]).await.unwrap().get(0);
    assert!(locks < 64, "{locks} entries of the server's lock table are held by one producer");
    payroll.batch_execute("commit").await.unwrap();
    let rows = "select count(*) from symphony.payment_outbox_pending p
                join symphony.payment_outbox_keys k on k.outbox_id = p.outbox_id where p.instruction_id !~ '^due'";
    assert_eq!(count(&client, rows).await, 100_000);
    let gaps = "select count(*) from (
                  select from symphony.payment_outbox_pending where instruction_id ~ '^i-' group by participant_id
                  having max(sequence_id) <> count(*) or min(sequence_id) <> 1) g";
    assert_eq!(count(&client, gaps).await, 0);
}

#[tokio::test]
async fn batches_with_overlapping_keys_in_opposite_order_do_not_deadlock() {
    let (database, client) = database().await;
    let barrier = Arc::new(Barrier::new(4));
    let mut producers = Vec::new();
    for producer in 0..4 {
        let session = database.connect_as("symphony_ingest").await.unwrap();
        let barrier = Arc::clone(&barrier);
        producers.push(tokio::spawn(async move {
            let mut enqueued = 0;
            for round in 0..15 {
                barrier.wait().await;
                // Half of the keys are those of the neighbour; the participants of each round are new.
                let first = round * 10_000 + producer * 250;
                enqueued += enqueue_batch(&session, first, producer % 2 == 0).await.unwrap();
            }
            enqueued
        }));
    }
    let mut enqueued = 0;
    for producer in producers {
        enqueued += producer.await.unwrap();
    }
    // 250 for each producer and 250 more for the last, in each round.
    assert_eq!(enqueued, 15 * 1_250);
    assert_eq!(count(&client, "select count(*) from symphony.payment_outbox_pending").await, enqueued);
    assert_eq!(count(&client, "select count(*) from symphony.payment_outbox_keys").await, enqueued);
}

#[tokio::test]
async fn a_key_that_was_committed_after_the_snapshot_is_a_serialization_failure() {
    let (database, client) = database().await;
    for isolation in ["repeatable read", "serializable"] {
        for batch in [false, true] {
            let producer = database.connect_as("symphony_ingest").await.unwrap();
            producer.batch_execute(&format!("begin isolation level {isolation}; select 1")).await.unwrap();
            let name = format!("{isolation}-{batch}");
            enqueue(&client, &name, "plain").await.unwrap();
            let again = async |session: &Client, participant: &str| {
                let sql = if batch {
                    "select replayed from symphony.enqueue_payment_outbox_batch(array[$1], array[$2], '{key}', '{plain}', array['{\"amount\": 1.0}'::jsonb])"
                } else {
                    "select replayed from symphony.enqueue_payment_outbox($1, $2, 'key', 'plain', '{\"amount\": 1.0}')"
                };
                session.query_one(sql, &[&name, &participant]).await.map(|row| row.get::<_, bool>(0))
            };
            // Whatever its content: what the key stands for cannot be seen.
            assert_eq!(sqlstate(again(&producer, &name).await), "40001", "{isolation}, batch: {batch}");
            producer.batch_execute("rollback").await.unwrap();
            producer.batch_execute(&format!("begin isolation level {isolation}")).await.unwrap();
            assert!(again(&producer, &name).await.unwrap(), "a newer snapshot sees the key");
            assert_eq!(sqlstate(again(&producer, "other").await), "P7004");
            producer.batch_execute("rollback").await.unwrap();
        }
    }
    // Keys of one's own transaction are seen, whatever its snapshot.
    for isolation in ["repeatable read", "serializable"] {
        client.batch_execute(&format!("begin isolation level {isolation}; select 1")).await.unwrap();
        assert!(!enqueue(&client, &format!("own-{isolation}"), "plain").await.unwrap());
        assert!(enqueue(&client, &format!("own-{isolation}"), "plain").await.unwrap());
        client.batch_execute("commit").await.unwrap();
    }
    assert_eq!(count(&client, "select count(*) from symphony.payment_outbox_pending").await, 6);
}

#[tokio::test]
async fn a_registered_key_is_kept_and_changes_by_a_redrive_only() {
    let (_database, client) = database().await;
    enqueue(&client, "one", "plain").await.unwrap();
    client
        .batch_execute("create table public.parent (); alter table public.parent owner to symphony_control")
        .await
        .unwrap();
    for attack in [
        "delete from symphony.payment_outbox_keys",
        "truncate symphony.payment_outbox_keys",
        "update symphony.payment_outbox_keys set outbox_id = gen_random_uuid()",
        "update symphony.payment_outbox_keys set content_digest = sha256('other')",
        "update symphony.payment_outbox_keys set idempotency_key = 'other'",
        "update symphony.payment_outbox_keys set instruction_id = 'other'",
        "update symphony.payment_outbox_keys set created_at = now() - interval '1 day'",
        "begin; set local session_replication_role = replica; delete from symphony.payment_outbox_keys",
        "begin; alter table symphony.payment_outbox_keys inherit public.parent; delete from public.parent",
        "delete from symphony.metadata_entities",
    ] {
        assert_eq!(sqlstate(client.batch_execute(attack).await), "P0001", "{attack}");
        client.batch_execute("rollback").await.unwrap();
    }

    assert_eq!(claim(&client, 1).await, ["one"]);
    let fail = "select symphony.complete_outbox_attempt(outbox_id, lease_token, 'worker', 'FAILED', p_error_code => 'REJECTED')
                from symphony.payment_outbox_pending";
    client.execute(fail, &[]).await.unwrap();
    let redrive = "select r.outbox_id::text from symphony.payment_outbox_dlq d,
                   lateral symphony.redrive_payment_outbox(d.outbox_id, 'test', 'locks') r";
    let newest: String = client.query_one(redrive, &[]).await.unwrap().get(0);
    let key = "select outbox_id::text from symphony.payment_outbox_keys";
    assert_eq!(client.query_one(key, &[]).await.unwrap().get::<_, String>(0), newest);
    // Both outboxes of the key are found by it.
    let search = "select jsonb_array_length(outboxes)::int8 from symphony.search_payment_outboxes(null, null, 'key', null, null, null, null, null, null, 50)";
    assert_eq!(count(&client, search).await, 2);
}

#[tokio::test]
async fn a_key_keeps_its_meaning_after_the_rows_of_its_outbox_have_gone() {
    let (_database, client) = database().await;
    enqueue(&client, "paid", "plain").await.unwrap();
    // As a retention would, once there is one.
    client
        .batch_execute(
            "set session_replication_role = replica;
             alter table symphony.payment_outbox_pending disable trigger user;
             delete from symphony.payment_outbox_pending;
             alter table symphony.payment_outbox_pending enable trigger user;
             reset session_replication_role",
        )
        .await
        .unwrap();
    assert!(enqueue(&client, "paid", "plain").await.unwrap(), "a replay");
    assert_eq!(sqlstate(enqueue(&client, "paid", "capped").await), "P7004");
    assert_eq!(count(&client, "select count(*) from symphony.payment_outbox_pending").await, 0);
}

#[tokio::test]
async fn a_single_and_a_batch_give_a_key_the_same_digest() {
    let (_database, client) = database().await;
    let names = ["plain", "ünïcode 👍", "1:a", "a\u{1}b", "with \"quotes\" and \\"];
    for (place, name) in names.iter().enumerate() {
        let instruction = format!("{place}");
        let single = "select symphony.enqueue_payment_outbox($1, $2, $2, 'plain', jsonb_build_object('a', $2::text, 'n', 1.50))";
        client.batch_execute("begin").await.unwrap();
        client.execute(single, &[&instruction, name]).await.unwrap();
        let digest =
            "select encode(content_digest, 'hex') from symphony.payment_outbox_keys where instruction_id = $1";
        let of_single: String = client.query_one(digest, &[&instruction]).await.unwrap().get(0);
        client.batch_execute("rollback").await.unwrap();
        let batch = "select symphony.enqueue_payment_outbox_batch(array[$1], array[$2], array[$2], '{plain}',
                                                                  array[jsonb_build_object('a', $2::text, 'n', 1.50)])";
        client.execute(batch, &[&instruction, name]).await.unwrap();
        assert_eq!(
            client.query_one(digest, &[&instruction]).await.unwrap().get::<_, String>(0),
            of_single,
            "{name:?}"
        );
    }
    // The same number in another scale is the same payment, as before.
    let scale = "select replayed from symphony.enqueue_payment_outbox('0', 'plain', 'plain', 'plain', '{\"a\": \"plain\", \"n\": 1.5}')";
    assert!(client.query_one(scale, &[]).await.unwrap().get::<_, bool>(0));
}
