//! `symphony erase`: what it refuses, what it erases, and how the other commands show it.

use symphony_db::payment::{Outcome, RailAnswer};
use symphony_testkit::test_database::Server;

use crate::program::symphony;
use crate::{reason, work};

const AUDIT: [&str; 4] = ["--actor", "ana", "--reason", "request 17"];

#[tokio::test]
async fn erase_removes_the_payloads_of_an_instruction_and_inspect_says_so() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let duty = database.url_as_login(&["symphony_operator"]).await.unwrap();
    let reader = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let owner = database.connect().await.unwrap();
    symphony(&duty, &[&["rail", "add", "sepa"], &AUDIT[..]].concat()).exits(0);
    let enqueue = "select outbox_id::text from symphony.enqueue_payment_outbox('pay-1', 'acme', $1, 'sepa', '{\"iban\": \"DE02\"}')";
    let payloads = "select count(*) from symphony.payment_outbox_attempts where payload ? 'iban'";
    let payloads = async || owner.query_one(payloads, &[]).await.unwrap().get::<_, i64>(0);

    let paid: String = owner.query_one(enqueue, &[&"k1"]).await.unwrap().get(0);
    let erase = |what: &[&str]| symphony(&duty, &[&["erase"], what, &AUDIT[..]].concat());
    let pending = erase(&[&paid]).exits(3);
    assert!(
        pending.stderr.contains("P7003") && pending.stderr.contains("nothing was erased"),
        "{}",
        pending.all()
    );
    assert_eq!(work(&database, Outcome::Dispatched { rail: RailAnswer::default() }).await, paid);
    let failed: String = owner.query_one(enqueue, &[&"k2"]).await.unwrap().get(0);
    let refusal = Outcome::Failed { reason: reason("NO_ACCOUNT"), rail: RailAnswer::default() };
    assert_eq!(work(&database, refusal).await, failed);

    // All payments of the instruction or none.
    let refused = erase(&["--instruction", "pay-1"]).exits(3);
    assert!(
        refused.stderr.contains("unresolved dead letter") && refused.stderr.contains("hint: "),
        "{}",
        refused.all()
    );
    assert_eq!(payloads().await, 2);
    symphony(&duty, &[&["dlq", "resolve", &failed, "--as", "SKIPPED"], &AUDIT[..]].concat()).exits(0);
    let dry = symphony(&duty, &["erase", "--instruction", "pay-1", "--dry-run"]).exits(0).stdout;
    assert!(dry.contains("would erase the payload in 2 rows") && dry.contains(&paid), "{dry}");
    assert_eq!(payloads().await, 2);

    symphony(&reader, &[&["erase", &paid], &AUDIT[..]].concat()).exits(3);
    assert_eq!(payloads().await, 2, "a reader may not");
    let erased = erase(&[&paid, "--json"]).exits(0).json();
    assert_eq!((&erased[0]["outbox_ids"][0], &erased[0]["rows"]), (&paid.as_str().into(), &1.into()));
    let rest = erase(&["--instruction", "pay-1"]).exits(0).stdout;
    assert!(rest.contains(&failed) && !rest.contains(&paid), "{rest}");
    assert!(rest.contains("\n  vacuum full symphony.payment_outbox_attempts_from_start;"), "{rest}");
    assert_eq!(payloads().await, 0);

    for again in [&[paid.as_str()][..], &["--instruction", "pay-1"]] {
        let refused = symphony(&duty, &[&["erase"], again, &AUDIT[..]].concat());
        assert!(refused.stderr.contains("was erased already"), "{}", refused.all());
    }
    for unknown in [&["0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f"][..], &["--instruction", "nothing"]] {
        let refused = erase(unknown).exits(1);
        assert!(refused.stderr.contains("there is no"), "{}", refused.all());
    }
    for usage in [&["erase"][..], &["erase", &paid], &["erase", &paid, "--instruction", "pay-1", "--dry-run"]] {
        symphony(&duty, usage).exits(2);
    }

    let text = symphony(&reader, &["inspect", "pay-1"]).exits(0).stdout;
    assert_eq!(text.matches("PAYLOAD ERASED by ana").count(), 2, "{text}");
    let export = symphony(&reader, &["audit", "outbox", &paid, "--format", "ndjson"]).exits(0).stdout;
    assert!(export.contains(r#""what":"ERASE""#) && export.contains("request 17"), "{export}");
}
