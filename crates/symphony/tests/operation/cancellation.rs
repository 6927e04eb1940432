//! `symphony cancel`, `outcome`, `enqueue --not-before` and `dlq redrive --new-key`, each with the role that it names.

use serde_json::{Value, json};
use symphony_db::payment::{Outcome, RailAnswer};
use symphony_testkit::test_database::Server;

use super::program::symphony;
use super::{reason, work};

const AUDIT: [&str; 4] = ["--actor", "ana", "--reason", "the order was cancelled"];

fn enqueue(url: &str, instruction: &str, key: &str, more: &[&str]) -> Value {
    let payment =
        ["enqueue", "--instruction", instruction, "--participant", "acme", "--key", key, "--rail", "sepa"];
    symphony(url, &[&payment[..], &["--payload", r#"{"iban":"DE02"}"#, "--json"], more].concat()).exits(0).json()
}

fn outcome(url: &str, instruction: &str, key: &str) -> Value {
    symphony(url, &["outcome", instruction, "--key", key, "--json"]).exits(0).json()
}

#[tokio::test]
async fn a_producer_schedules_a_payment_cancels_it_and_learns_its_outcome() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let till = database.url_as_login(&["symphony_ingest"]).await.unwrap();
    let duty = database.url_as_login(&["symphony_operator"]).await.unwrap();
    let reader = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    symphony(&duty, &[&["rail", "add", "sepa"], &AUDIT[..]].concat()).exits(0);

    let hour = (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(1)).to_string();
    let enqueued = enqueue(&till, "pay-1", "k1", &["--not-before", &hour]);
    assert!(symphony(&reader, &["inspect", "pay-1"]).exits(0).stdout.contains("now: SCHEDULED"));
    let pending = outcome(&till, "pay-1", "k1");
    assert_eq!((&pending["state"], &pending["attempts"]), (&json!("PENDING"), &json!(0)));
    assert_eq!(pending["next_attempt_at"].as_str().map(|at| &at[..19]), Some(&hour[..19]));
    assert!(symphony(&till, &["enqueue", "--not-before", "tomorrow"]).exits(2).stderr.contains("--not-before"));

    let cancel = [&["cancel", "pay-1", "--key", "k1"], &AUDIT[..]].concat();
    let cancelled = symphony(&till, &[&cancel[..], &["--json"]].concat()).exits(0).json();
    assert_eq!(cancelled["outbox_id"], enqueued["outbox_id"]);
    let again = symphony(&duty, &cancel).exits(3);
    assert!(again.stderr.contains("was cancelled already") && again.stderr.contains("P7001"), "{}", again.all());
    let unknown = symphony(&till, &[&["cancel", "pay-1", "--key", "k2"], &AUDIT[..]].concat()).exits(2);
    assert!(unknown.stderr.contains("has no payment with this idempotency key"), "{}", unknown.all());

    let ended = outcome(&till, "pay-1", "k1");
    assert_eq!((&ended["state"], &ended["error_code"]), (&json!("FAILED"), &json!("CANCELLED")));
    assert_eq!((&ended["attempts"], &ended["outcome_unknown"]), (&json!(0), &json!(false)));
    let text = symphony(&till, &["outcome", "pay-1", "--key", "k1"]).exits(0).stdout;
    assert!(text.contains("error code       CANCELLED") && !text.contains("DE02"), "{text}");
    let none = symphony(&till, &["outcome", "pay-1", "--key", "k2"]).exits(1);
    assert!(none.stderr.contains("hint: "), "{}", none.all());

    let timeline = symphony(&reader, &["inspect", "pay-1"]).exits(0).stdout;
    assert!(timeline.contains("CANCELLED before it was sent by ana"), "{timeline}");
    assert!(!timeline.contains("CLAIMED by") && !timeline.contains("attempt"), "{timeline}");
    assert_eq!(symphony(&reader, &["dlq", "list", "--json"]).exits(0).json(), json!([]));
    assert_eq!(symphony(&reader, &["status", "--json"]).exits(0).json()["dlq"], 0);
    database.close().await.unwrap();
}

#[tokio::test]
async fn an_operator_redrives_a_refused_payment_under_a_new_key() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let url = database.url();
    symphony(&url, &[&["rail", "add", "sepa"], &AUDIT[..]].concat()).exits(0);
    enqueue(&url, "pay-1", "k1", &[]);
    let rail = RailAnswer { reference: None, code: Some("AC04".into()) };
    let refused = work(&database, Outcome::Failed { reason: reason("RAIL_REFUSED"), rail }).await;

    let redrive = |more: &[&str]| symphony(&url, &[&["dlq", "redrive", &refused], &AUDIT[..], more].concat());
    assert!(redrive(&["--payload", "{}"]).exits(2).stderr.contains("--new-key"));
    let invalid = redrive(&["--new-key", "k2", "--payload", "{\"iban\": DE99}"]).exits(2);
    assert!(invalid.stderr.contains("is not JSON") && !invalid.stderr.contains("DE99"), "{}", invalid.all());
    assert!(
        redrive(&["--new-key", "k1"]).exits(2).stderr.contains("the new idempotency key is that of the failure")
    );
    redrive(&["--new-key", "k2", "--payload", r#"{"iban":"DE99"}"#]).exits(0);

    let timeline = symphony(&url, &["inspect", "pay-1"]).exits(0).stdout;
    assert!(timeline.contains("under the new key k2 and a new payload by ana"), "{timeline}");
    assert!(!timeline.contains("DE99"), "{timeline}");
    work(&database, Outcome::Dispatched { rail: RailAnswer::default() }).await;
    let states = ["k1", "k2"].map(|key| outcome(&url, "pay-1", key)["state"].clone());
    assert_eq!(states, [json!("FAILED"), json!("DISPATCHED")]);
    database.close().await.unwrap();
}
