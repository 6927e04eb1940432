//! Requests have the idempotency key, the same body on every attempt, and signatures that a bank can verify.

use symphony_relay::rail::Payment;

use crate::harness::{in_time, payment, refusal};
use crate::recorder::{Recorder, header};

const NEW_SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD_SECRET: &str = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD";

pub(crate) fn verifies(secret: &str, head: &str, body: &str) -> bool {
    let webhook = standardwebhooks::Webhook::new(secret).unwrap();
    let mut headers = axum::http::HeaderMap::new();
    for name in ["webhook-id", "webhook-timestamp", "webhook-signature"] {
        headers.insert(name, header(head, name).unwrap().parse().unwrap());
    }
    webhook.verify(body.as_bytes(), &headers).is_ok()
}

#[tokio::test]
async fn a_payment_is_posted_with_its_key_and_every_digit_of_its_payload() {
    let mut recorder = Recorder::new("").await;
    let (head, body) = recorder.sent(&payment()).await;
    assert!(head.starts_with("POST /v1/payments HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "idempotency-key"), Some("key-1"));
    assert_eq!(header(&head, "content-type"), Some("application/json"));
    assert_eq!(header(&head, "accept"), Some("application/json"));
    assert_eq!(header(&head, "webhook-signature"), None);
    assert_eq!(header(&head, "accept-encoding"), None);
    assert_eq!(header(&head, "connection"), Some("close"));
    assert_eq!(header(&head, "symphony-sequence-id"), Some("7"));
    assert_eq!(
        body,
        r#"{"instruction_id":"instruction-1","participant_id":"participant-1","idempotency_key":"key-1","rail_type":"sepa","payload":{"amount": "10.00", "currency": "EUR", "destination": {"iban": "DE89370400440532013000"}}}"#
    );
}

#[tokio::test]
async fn a_reusable_connection_has_no_connection_close() {
    let (head, _) = Recorder::new("idle_timeout = '1m'").await.sent(&payment()).await;
    assert_eq!(header(&head, "connection"), None);
}

#[tokio::test]
async fn every_attempt_sends_the_same_bytes() {
    let mut recorder = Recorder::new("").await;
    let first = recorder.sent(&payment()).await;
    let later = Payment { attempt_count: 9, outbox_id: uuid::Uuid::max().into(), ..payment() };
    assert_eq!(first, recorder.sent(&later).await);
    // Enqueued again after its first enqueue was lost.
    let again = Payment { sequence_id: 1_000_000_000_001, ..later };
    let (head, body) = recorder.sent(&again).await;
    assert_eq!((header(&head, "symphony-sequence-id"), &body), (Some("1000000000001"), &first.1));
}

#[tokio::test]
async fn a_bank_can_verify_the_signature_with_the_new_or_the_old_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let both = file("both", &format!("{NEW_SECRET}\n{OLD_SECRET}\n"));
    let (new, old) = (file("new", NEW_SECRET), file("old", OLD_SECRET));
    for settings in [format!("secret_file = '{both}'"), format!("secret_file = ['{new}', '{old}']")] {
        let mut recorder = Recorder::new(&settings).await;
        let (head, body) = recorder.sent(&payment()).await;
        assert_eq!(header(&head, "webhook-id"), Some("key-1"));
        assert!(verifies(NEW_SECRET, &head, &body) && verifies(OLD_SECRET, &head, &body));
        assert!(!verifies("whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", &head, &body));
        assert!(!verifies(NEW_SECRET, &head, &body.replace("10.00", "99.00")));

        recorder.rail.inquire(&payment()).await;
        let (head, body) = in_time(recorder.requests.recv()).await.unwrap();
        assert!(head.starts_with("GET /v1/payments/key-1 HTTP/1.1\r\n"), "{head}");
        assert!(body.is_empty() && verifies(NEW_SECRET, &head, &body) && verifies(OLD_SECRET, &head, &body));
    }
}

#[tokio::test]
async fn a_key_is_percent_encoded_in_the_path_of_an_inquiry() {
    let mut recorder = Recorder::new("").await;
    let odd = Payment { idempotency_key: "a/../b?c#d%2f&e".to_owned(), ..payment() };
    recorder.rail.inquire(&odd).await;
    let (head, _) = in_time(recorder.requests.recv()).await.unwrap();
    assert!(head.starts_with("GET /v1/payments/a%2F..%2Fb%3Fc%23d%252f%26e HTTP/1.1\r\n"), "{head}");
    assert_eq!(header(&head, "idempotency-key"), Some("a/../b?c#d%2f&e"));
}

#[tokio::test]
async fn a_token_and_headers_come_from_files_and_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let token = folder.path().join("token");
    std::fs::write(&token, "t0ken\n").unwrap();
    let settings = format!(
        "bearer_file = '{}'\nidempotency_header = 'X-Request-Id'\n\
         headers = {{ 'X-Client' = {{ env = 'CARGO_PKG_NAME' }}, 'X-Plain' = 'yes' }}",
        token.display()
    );
    let (head, _) = Recorder::new(&settings).await.sent(&payment()).await;
    assert_eq!(header(&head, "authorization"), Some("Bearer t0ken"));
    assert_eq!(header(&head, "x-client"), Some("symphony-sinks"));
    assert_eq!(header(&head, "x-plain"), Some("yes"));
    assert_eq!(header(&head, "x-request-id"), Some("key-1"));
    assert_eq!(header(&head, "idempotency-key"), None);
}

#[test]
fn an_invalid_secret_is_not_shown() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, "whsec_hidden").unwrap();
    let toml = format!("kind = 'http'\nurl = 'https://bank.example/'\nsecret_file = '{}'", path.display());
    let error = refusal(&toml);
    assert!(error.starts_with("rail sepa: secret_file: must contain secrets of the form whsec_…"), "{error}");
    assert!(!error.contains("hidden"));
    let Err(error) = symphony_sinks::rail("sepa", toml.parse().unwrap()) else { unreachable!() };
    assert!(!format!("{error:?}").contains("hidden"));
}

#[tokio::test]
async fn a_key_that_is_no_valid_header_value_is_not_sent() {
    let mut recorder = Recorder::new("").await;
    for key in ["", "a b", " a", "a\r\nX-Evil: 1", "schlüssel", "a\u{0}"] {
        let odd = Payment { idempotency_key: key.to_owned(), ..payment() };
        let error = recorder.rail.validate(&odd).unwrap_err().message;
        assert!(error.starts_with("idempotency_key must be"), "{error}");
        crate::harness::assert_not_sent(&recorder.rail.dispatch(&odd).await);
        crate::harness::assert_inconclusive(&recorder.rail.inquire(&odd).await);
    }
    let dots = Payment { idempotency_key: "..".to_owned(), ..payment() };
    assert!(recorder.rail.validate(&dots).is_err());
    crate::harness::assert_inconclusive(&recorder.rail.inquire(&dots).await);
    assert!(recorder.requests.try_recv().is_err());
}
