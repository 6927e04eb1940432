//! Each lane stores the cleaned error text, by every function that takes one.

use tokio_postgres::Client;

use super::database;

const GIVEN: &str = "payee ann@example.org,\nDE89 3704 0044 0532 0130 00: token=abc123 is no good";
const KEPT: &str = "payee [e-mail], [iban]: token=[hidden] is no good";

/// A payment under a lease of the worker `w`: its ids, and those of the lease.
async fn leased(client: &Client, name: &str, rail: &str) -> (String, String) {
    let enqueue = "select symphony.enqueue_payment_outbox($1, 'p', $1, $2, '{}')";
    client.execute(enqueue, &[&name, &rail]).await.unwrap();
    let claim = "select outbox_id::text, lease_token::text from symphony.claim_outbox_batch(1, 'w', 60)";
    let row = client.query_one(claim, &[]).await.unwrap();
    (row.get(0), row.get(1))
}

#[tokio::test]
async fn the_ledger_keeps_a_cleaned_error_and_the_code_as_it_is() {
    let (_database, client) = database().await;
    for (rail, attempts) in [("patient", 20), ("impatient", 1)] {
        let set = "select symphony.register_payment_rail($1, jsonb_build_object('max_attempts', $2::int), 'a', 'a test')";
        client.execute(set, &[&rail, &attempts]).await.unwrap();
    }
    let one = "select * from symphony.complete_outbox_attempt($1::text::uuid, $2::text::uuid, 'w', $3::text::symphony.outbox_attempt_state, null, null, 'token: A1', $4, null, 3600)";
    let many = "select * from symphony.complete_outbox_batch(array[$1::text::uuid], array[$2::text::uuid], 'w', array[$3::text::symphony.outbox_attempt_state],
                  null, null, array['token: A1'], array[$4], null, array[3600])";
    // The message is the code and the error, and is cleaned as a whole: what stands behind such a word is taken for a secret.
    let exhausted = KEPT.replacen("payee", "token: [hidden] payee", 1);
    let cases = [
        (one, "patient", "FAILED", "token: A1", KEPT),
        (one, "patient", "RETRYABLE", "token: A1", KEPT),
        (many, "patient", "FAILED", "token: A1", KEPT),
        (many, "patient", "RETRYABLE", "token: A1", KEPT),
        (one, "impatient", "RETRYABLE", "RETRIES_EXHAUSTED", &exhausted),
        (many, "impatient", "RETRYABLE", "RETRIES_EXHAUSTED", &exhausted),
    ];
    for (number, (complete, rail, state, code, kept)) in cases.into_iter().enumerate() {
        let (outbox, token) = leased(&client, &number.to_string(), rail).await;
        client.execute(complete, &[&outbox, &token, &state, &GIVEN]).await.unwrap();
        let ledger = "select error_code, error_message from symphony.payment_outbox_attempts where outbox_id = $1::text::uuid";
        let row = client.query_one(ledger, &[&outbox]).await.unwrap();
        assert_eq!((row.get(0), row.get(1)), (Some(code), Some(kept)), "{rail} {state}");
    }
}

#[tokio::test]
async fn an_event_keeps_a_cleaned_error() {
    let (_database, client) = database().await;
    client.batch_execute("select m10_recovery.publish_outbox('order', 'o', 'paid', '{}')").await.unwrap();
    client.batch_execute("select * from m10_recovery.claim_outbox_events('w', 1)").await.unwrap();
    let fail = "select m10_recovery.complete_outbox_event(id, 'w', false, $1) from m10_recovery.outbox";
    client.execute(fail, &[&GIVEN]).await.unwrap();
    let row = client.query_one("select error from m10_recovery.outbox_errors", &[]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), KEPT);
}

#[tokio::test]
async fn a_metadata_entry_keeps_a_cleaned_error_and_a_cleaned_reason() {
    let (_database, client) = database().await;
    let create = "select symphony.create_metadata_entry('customer', 'c-1', '{}')";
    let claim = "select id::text, claim_token::text from symphony.claim_metadata_batch('w', 1)";
    let fail = "select symphony.mark_metadata_failed($1::text::uuid, $2::text::uuid, $3)";
    let bury = "select symphony.mark_metadata_dlq($1::text::uuid, null, $2)";
    let kept = "select last_error from symphony.metadata_outbox";
    client.batch_execute(create).await.unwrap();
    let row = client.query_one(claim, &[]).await.unwrap();
    let (entry, token): (&str, &str) = (row.get(0), row.get(1));
    client.execute(fail, &[&entry, &token, &GIVEN]).await.unwrap();
    assert_eq!(client.query_one(kept, &[]).await.unwrap().get::<_, &str>(0), KEPT);
    client.execute(bury, &[&entry, &format!("given up: {GIVEN}")]).await.unwrap();
    assert_eq!(client.query_one(kept, &[]).await.unwrap().get::<_, String>(0), format!("given up: {KEPT}"));
}

#[tokio::test]
async fn no_setting_of_a_caller_changes_what_is_taken_away() {
    let (_database, client) = database().await;
    // A backslash in a pattern would mean something else.
    let settings =
        "set standard_conforming_strings = off; set backslash_quote = on; set escape_string_warning = off";
    client.batch_execute(settings).await.unwrap();
    let row = client.query_one("select symphony.clean_error_text($1)", &[&GIVEN]).await.unwrap();
    assert_eq!(row.get::<_, &str>(0), KEPT);
}
