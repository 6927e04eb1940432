//! Pending rows whose outbox has ended in the ledger, as a bad restore leaves them: they are quarantined and block nothing.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use symphony_testkit::test_database::{Database, Server};
use tokio_postgres::Client;

async fn database() -> (Database, Client) {
    let database = Server::from_env().await.unwrap().database().await.unwrap();
    let client = database.connect().await.unwrap();
    (database, client)
}

/// Payments `1` to `count` of as many participants on this rail.
async fn enqueue(client: &Client, rail: &str, policy: &str, count: i32) {
    let set = "select symphony.register_payment_rail($1, $2::text::jsonb, 'operator', 'a test')";
    client.execute(set, &[&rail, &policy]).await.unwrap();
    let enqueue = "select symphony.enqueue_payment_outbox($1 || i, 'p' || i, $1 || i, $1, '{}') from generate_series(1, $2::int) i";
    client.execute(enqueue, &[&rail, &count]).await.unwrap();
}

/// Writes the end of each of these into the ledger, past the functions: pending is now older than the ledger.
async fn end_in_the_ledger(client: &Client, instructions: &str) {
    let end = "insert into symphony.payment_outbox_attempts
                 (outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, attempt_no, state,
                  claimed_at, worker_id, created_at)
               select outbox_id, instruction_id, participant_id, sequence_id, idempotency_key, rail_type, payload, 1, 'DISPATCHED',
                      now(), 'lost', created_at
               from symphony.payment_outbox_pending where instruction_id like $1";
    client.execute(end, &[&instructions]).await.unwrap();
}

async fn claim(client: &Client, batch: i32) -> Vec<String> {
    let claim = "select instruction_id from symphony.claim_outbox_batch($1, 'worker', 60)";
    client.query(claim, &[&batch]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

/// The quarantined instructions with their state in the ledger.
async fn quarantined(client: &Client) -> Vec<String> {
    let read =
        "select instruction_id || ' ' || ledger_state from symphony.quarantined_outboxes order by instruction_id";
    client.query(read, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

async fn number(client: &Client, query: &str) -> i64 {
    client.query_one(query, &[]).await.unwrap().get(0)
}

const PENDING: &str = "select count(*) from symphony.payment_outbox_pending";

#[tokio::test]
async fn a_claim_returns_the_rows_behind_rows_that_have_ended() {
    let (_database, client) = database().await;
    enqueue(&client, "sepa", "{}", 7).await;
    end_in_the_ledger(&client, "sepa_").await;
    enqueue(&client, "wire", "{}", 1).await;
    client
        .execute("select symphony.enqueue_payment_outbox('last', 'p', 'last', 'sepa', '{}')", &[])
        .await
        .unwrap();
    // As many as a batch, and more, are in front.
    assert_eq!(claim(&client, 3).await, ["wire1", "last"]);
    let ended: Vec<_> = (1..=7).map(|number| format!("sepa{number} DISPATCHED")).collect();
    assert_eq!(quarantined(&client).await, ended);
    assert_eq!(number(&client, PENDING).await, 2);
    assert_eq!(number(&client, "select symphony.quarantined_outboxes_total()").await, 7);
}

#[tokio::test]
async fn the_successor_on_an_ordered_rail_goes_on() {
    let (_database, client) = database().await;
    enqueue(&client, "strict", r#"{"ordered": true, "max_in_flight": 1}"#, 1).await;
    for name in ["second", "third"] {
        let next = "select symphony.enqueue_payment_outbox($1, 'p1', $1, 'strict', '{}')";
        client.execute(next, &[&name]).await.unwrap();
    }
    end_in_the_ledger(&client, "strict1").await;
    let mut handed = claim(&client, 10).await;
    handed.extend(claim(&client, 10).await);
    assert_eq!(handed, ["second"]);
    assert_eq!(quarantined(&client).await, ["strict1 DISPATCHED"]);
}

#[tokio::test]
async fn an_expired_lease_of_such_a_row_is_repaired_into_quarantine_and_the_others_go_on() {
    let (_database, client) = database().await;
    enqueue(&client, "sepa", "{}", 3).await;
    assert_eq!(claim(&client, 3).await.len(), 3);
    end_in_the_ledger(&client, "sepa2").await;
    client.batch_execute("update symphony.payment_outbox_pending set lease_expires_at = now()").await.unwrap();
    let repaired =
        client.query("select outbox_id from symphony.repair_expired_leases(10, 'repairer')", &[]).await.unwrap();
    assert_eq!(repaired.len(), 2);
    assert_eq!(quarantined(&client).await, ["sepa2 DISPATCHED"]);
    assert_eq!(
        client
            .query("select outbox_id from symphony.repair_expired_leases(10, 'repairer')", &[])
            .await
            .unwrap()
            .len(),
        0
    );
}

#[tokio::test]
async fn the_quarantine_keeps_the_epochs_and_the_endpoint_of_a_row() {
    let (_database, client) = database().await;
    enqueue(&client, "sepa", "{}", 1).await;
    client.execute("select symphony.open_epoch('operator', 'a test', 7)", &[]).await.unwrap();
    let claim = r#"select from symphony.claim_outbox_batch(1, 'worker', 60, p_endpoints => '{"sepa": "bank#kkkkkkkkkkkkkkkk"}')"#;
    assert_eq!(client.query(claim, &[]).await.unwrap().len(), 1);
    end_in_the_ledger(&client, "sepa1").await;
    client.batch_execute("update symphony.payment_outbox_pending set lease_expires_at = now()").await.unwrap();
    client.query("select from symphony.repair_expired_leases(10, 'repairer')", &[]).await.unwrap();
    let kept = "select concat_ws(' ', epoch, claimed_epoch, claimed_endpoint) from symphony.quarantined_outboxes";
    let kept: String = client.query_one(kept, &[]).await.unwrap().get(0);
    assert_eq!(kept, "1 7 bank#kkkkkkkkkkkkkkkk");
}

#[tokio::test]
async fn a_takeover_of_such_a_row_quarantines_it() {
    let (_database, client) = database().await;
    enqueue(&client, "sepa", "{}", 2).await;
    assert_eq!(claim(&client, 2).await.len(), 2);
    end_in_the_ledger(&client, "sepa1").await;
    client.batch_execute("update symphony.payment_outbox_pending set lease_expires_at = now()").await.unwrap();
    assert_eq!(claim(&client, 1).await, ["sepa2"]);
    assert_eq!(quarantined(&client).await, ["sepa1 DISPATCHED"]);
}

#[tokio::test]
async fn a_batch_of_completions_quarantines_such_a_row_and_records_the_others() {
    let (_database, client) = database().await;
    enqueue(&client, "sepa", "{}", 3).await;
    assert_eq!(claim(&client, 3).await.len(), 3);
    end_in_the_ledger(&client, "sepa2").await;
    let complete = "select coalesce(c.state::text, c.refusal)
                    from (select array_agg(outbox_id order by instruction_id) as ids, array_agg(lease_token order by instruction_id) as tokens
                          from symphony.payment_outbox_pending) p,
                         symphony.complete_outbox_batch(p.ids, p.tokens, 'worker', '{DISPATCHED,FAILED,RETRYABLE}', p_error_codes => '{null,A,B}') c
                    order by c.position";
    let answers: Vec<String> = client.query(complete, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(answers, ["DISPATCHED", "P7001", "RETRYABLE"]);
    assert_eq!(quarantined(&client).await, ["sepa2 DISPATCHED"]);
    assert_eq!(number(&client, PENDING).await, 1);
    // The same where all of them end.
    enqueue(&client, "wire", "{}", 2).await;
    assert_eq!(claim(&client, 9).await, ["wire1", "wire2"]);
    end_in_the_ledger(&client, "wire1").await;
    let complete = complete
        .replace("{DISPATCHED,FAILED,RETRYABLE}", "{DISPATCHED,DISPATCHED}")
        .replace("{null,A,B}", "{null,null}")
        .replace(
            "from symphony.payment_outbox_pending)",
            "from symphony.payment_outbox_pending where rail_type = 'wire')",
        );
    let answers: Vec<String> = client.query(&complete, &[]).await.unwrap().iter().map(|row| row.get(0)).collect();
    assert_eq!(answers, ["P7001", "DISPATCHED"]);
    assert_eq!(quarantined(&client).await, ["sepa2 DISPATCHED", "wire1 DISPATCHED"]);
}

#[tokio::test]
async fn a_single_completion_of_such_a_row_is_refused_and_its_lease_is_repaired_into_quarantine() {
    let (_database, client) = database().await;
    enqueue(&client, "sepa", "{}", 1).await;
    assert_eq!(claim(&client, 1).await.len(), 1);
    end_in_the_ledger(&client, "sepa1").await;
    let complete = "select symphony.complete_outbox_attempt(outbox_id, lease_token, 'worker', 'DISPATCHED') from symphony.payment_outbox_pending";
    let refusal = client.execute(complete, &[]).await.unwrap_err();
    assert_eq!(refusal.code().unwrap().code(), "P7001");
    assert_eq!(number(&client, PENDING).await, 1);
    client.batch_execute("update symphony.payment_outbox_pending set lease_expires_at = now()").await.unwrap();
    client.batch_execute("select symphony.repair_expired_leases(10, 'repairer')").await.unwrap();
    assert_eq!(quarantined(&client).await, ["sepa1 DISPATCHED"]);
    assert_eq!(number(&client, PENDING).await, 0);
}
