//! What a bank receives from a rail whose request is shaped by the settings, and what is refused before it is sent.

use serde_json::{Value, json};
use symphony_relay::rail::{Inquiry, Payment};

use crate::bank_formats;
use crate::harness::{in_time, payment, refusal};
use crate::recorder::{Recorder, header};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/sinks/examples");
const HTTP: &str = "kind = 'http'\nurl = 'http://bank.example/'\nallow_http = true\n";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

fn with_payload(payload: &Value) -> Payment {
    Payment { payload: payload.clone().into(), ..payment() }
}

fn example() -> Value {
    serde_json::from_str(&std::fs::read_to_string(format!("{EXAMPLES}/payment.json")).unwrap()).unwrap()
}

/// The settings of a rail that sends this example.
fn message(name: &str) -> String {
    format!(
        "body = {{ template_file = '{EXAMPLES}/{name}.xml', format = 'xml' }}\nsample_file = '{EXAMPLES}/payment.json'"
    )
}

#[tokio::test]
async fn a_body_can_be_the_payload_alone() {
    let mut recorder = Recorder::new("body = 'payload'").await;
    let (head, body) = recorder.sent(&payment()).await;
    assert_eq!(body, payment().payload.as_json());
    assert_eq!(header(&head, "content-type"), Some("application/json"));
    assert_eq!(header(&head, "idempotency-key"), Some("key-1"));
}

#[tokio::test]
async fn method_query_headers_and_body_come_from_templates() {
    let settings = r#"
        method = 'PUT'
        query = { account = "{{ payload.destination.iban }}", "note" = "{{ payload.note | default('') }}" }
        headers = { "X-Sequence" = { template = "{{ participant_id }}/{{ sequence_id }}" } }
        [body]
        template = '{"id": "{{ idempotency_key }}", "value": {{ payload.amount | minor_units(payload.currency) }}, "decimal": {{ payload.amount | number }}, "to": {{ payload.destination }}, "note": "for {{ payload.note | default("-") }}"}'
        format = 'json'
        content_type = 'application/vnd.bank+json'
    "#;
    let mut recorder = Recorder::new(settings).await;
    let note = "a\"b\\c\u{1} &x=1#é\r\nX-Evil: 1";
    let odd = with_payload(&json!({
        "amount": "10.50", "currency": "EUR", "destination": { "iban": "DE89370400440532013000" }, "note": note,
    }));
    let (head, body) = recorder.sent(&odd).await;
    assert!(head.starts_with("PUT /v1/payments?account=DE89370400440532013000&note="), "{head}");
    let url = url::Url::parse(&format!("http://bank{}", head.split(' ').nth(1).unwrap())).unwrap();
    let query: Vec<(String, String)> = url.query_pairs().into_owned().collect();
    assert_eq!((query.len(), query[1].1.as_str()), (2, note));
    assert_eq!(header(&head, "x-evil"), None);
    assert_eq!(header(&head, "x-sequence"), Some("participant-1/7"));
    assert_eq!(header(&head, "content-type"), Some("application/vnd.bank+json"));
    assert!(body.contains("\"value\": 1050,") && body.contains("\"decimal\": 10.50,"), "{body}");
    let body: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(body["id"], "key-1");
    assert_eq!(body["to"], json!({ "iban": "DE89370400440532013000" }));
    assert_eq!(body["note"], format!("for {note}"));
}

#[tokio::test]
async fn the_iso_20022_examples_are_valid_and_say_what_was_enqueued() {
    let odd_name = "A & B <C> \"D\" 'E' ]]> --> é";
    for (name, amount, creditor, key) in [
        ("pain.001.001.09", "PmtInf/CdtTrfTxInf/Amt/InstdAmt", "PmtInf/CdtTrfTxInf/Cdtr/Nm", "GrpHdr/MsgId"),
        ("pacs.008.001.08", "CdtTrfTxInf/IntrBkSttlmAmt", "CdtTrfTxInf/Cdtr/Nm", "GrpHdr/MsgId"),
    ] {
        let mut recorder = Recorder::new(&message(name)).await;
        for (destination, remittance) in [("Müller & Söhne GmbH", Some("Invoice 4711")), (odd_name, None)] {
            let mut payload = example();
            payload["destination"]["name"] = destination.into();
            match remittance {
                Some(text) => payload["remittance"] = text.into(),
                None => drop(payload.as_object_mut().unwrap().remove("remittance")),
            }
            let (head, body) = recorder.sent(&with_payload(&payload)).await;
            assert_eq!(header(&head, "content-type"), Some("application/xml"));
            let read = bank_formats::check(&["xml"], body.as_bytes()).unwrap();
            assert_eq!(read["message"], name);
            let root = if name.starts_with("pain") { "CstmrCdtTrfInitn" } else { "FIToFICstmrCdtTrf" };
            let text = |path: &str| read["texts"][format!("{root}/{path}")].as_str().map(str::to_owned);
            assert_eq!(text(amount).as_deref(), Some("1250.00"));
            assert_eq!(text(&format!("{amount}@Ccy")).as_deref(), Some("EUR"));
            assert_eq!(text(creditor).as_deref(), Some(destination));
            assert_eq!(text(key).unwrap().len(), 32);
        }
    }
}

#[test]
fn the_check_of_the_examples_refuses_a_message_that_is_not_of_its_schema() {
    let wrong = "<Document xmlns='urn:iso:std:iso:20022:tech:xsd:pain.001.001.09'><CstmrCdtTrfInitn/></Document>";
    let error = bank_formats::check(&["xml"], wrong.as_bytes()).unwrap_err();
    assert!(error.contains("GrpHdr"), "{error}");
}

#[tokio::test]
async fn every_attempt_sends_the_same_bytes_of_a_template() {
    let mut recorder = Recorder::new(&message("pain.001.001.09")).await;
    let first = recorder.sent(&with_payload(&example())).await;
    let later = Payment { attempt_count: 9, outbox_id: uuid::Uuid::max().into(), ..with_payload(&example()) };
    assert_eq!(first, recorder.sent(&later).await);
}

#[tokio::test]
async fn a_payload_that_does_not_fit_the_templates_is_invalid_and_never_sent() {
    let folder = tempfile::tempdir().unwrap();
    let sample = folder.path().join("payment.json");
    let mut plain = example();
    plain["destination"]["name"] = "Acme".into();
    std::fs::write(&sample, plain.to_string()).unwrap();
    let mut recorder = Recorder::new(&format!(
        "body = {{ template_file = '{EXAMPLES}/pain.001.001.09.xml', format = 'xml' }}\nsample_file = '{}'\n\
         headers = {{ 'X-Name' = {{ template = '{{{{ payload.destination.name }}}}' }} }}",
        sample.display()
    ))
    .await;
    for (name, change, expected) in [
        ("missing", Value::Null, "names a field that the payment does not have"),
        ("long", Value::from("x".repeat(141)), "141 characters, and at most 140"),
        ("list", json!(["a"]), "list or an object"),
        ("control", Value::from("a\u{1}b"), "control character"),
        ("injection", Value::from("a\r\nX-Evil: 1"), "headers.x-name: the value must be printable ASCII"),
    ] {
        let mut payload = example();
        let destination = payload["destination"].as_object_mut().unwrap();
        destination.remove("name");
        if !change.is_null() {
            destination.insert("name".to_owned(), change);
        }
        let odd = with_payload(&payload);
        let error = recorder.rail.validate(&odd).unwrap_err().message;
        assert!(error.contains(expected), "{name}: {error}");
        assert!(!error.contains("X-Evil"), "{error}");
        crate::harness::assert_not_sent(&recorder.rail.dispatch(&odd).await);
    }
    assert!(recorder.requests.try_recv().is_err());
}

#[tokio::test]
async fn key_signature_and_inquiry_work_with_every_form_of_the_body() {
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, SECRET).unwrap();
    for form in ["body = 'envelope'", "body = 'payload'", &message("pacs.008.001.08")] {
        let mut recorder = Recorder::new(&format!("secret_file = '{}'\n{form}", secret.display())).await;
        let sent = with_payload(&example());
        recorder.rail.validate(&sent).unwrap();
        let (head, body) = recorder.sent(&sent).await;
        assert_eq!(header(&head, "idempotency-key"), Some("key-1"));
        assert!(crate::signature::verifies(SECRET, &head, &body), "{form}");
        assert!(!crate::signature::verifies(SECRET, &head, &body.replace("1250.00", "1250.01")), "{form}");
        assert!(matches!(recorder.rail.inquire(&sent).await, Inquiry::Executed(_)));
        let (head, _) = in_time(recorder.requests.recv()).await.unwrap();
        assert_eq!(header(&head, "idempotency-key"), Some("key-1"));
    }
}

#[test]
fn a_template_that_cannot_work_is_refused_when_the_settings_are_read() {
    for (toml, setting, advice) in [
        ("body = 'soap'", "body", "\"envelope\""),
        ("body = { format = 'json' }", "body", "one of template and template_file"),
        ("body = ['a', 'b', 'json']", "body", "\"envelope\""),
        ("body = { template = 'a', format = 'json', sample = 'b' }", "body", "unknown field `sample`"),
        ("headers = { 'X' = ['a'] }", "headers.X", "template"),
        ("body = { template = '', template_file = 'x', format = 'json' }", "body", "one of"),
        ("body = { template_file = '/no/such/file', format = 'xml' }", "body.template_file", "can be read"),
        ("body = { template = '{{ payload. }}', format = 'json' }", "body.template", "line 1"),
        ("body = { template = '{{ payload.name }}', format = 'json' }", "body", "set sample_file"),
        ("body = { template = '{\"a\": 1, \"a\": 2}', format = 'json' }", "body", "once"),
        ("body = { template = '<a>', format = 'xml' }", "body", "well-formed"),
        ("body = { template = '<!DOCTYPE a><a/>', format = 'xml' }", "body.template", "DOCTYPE"),
        ("body = { template = '<a b={{ sequence_id }}/>', format = 'xml' }", "body", "quoted attribute"),
        ("body = { template = '{}', format = 'json', content_type = \"a\\nb\" }", "body.content_type", "ASCII"),
        ("query = { 'a' = '{{ nothing }}' }", "body", "query.a"),
        ("headers = { 'Host' = { template = 'x' } }", "headers.Host", "leave it out"),
        ("headers = { 'X' = { template = '{{' } }", "headers.X", "is not a template"),
        ("method = 'GET'", "method", "POST"),
        ("sample_file = '/no/such/file'", "sample_file", "can be read"),
    ] {
        let error = refusal(&format!("{HTTP}{toml}"));
        assert!(
            error.starts_with(&format!("rail sepa: {setting}: ")) && error.contains(advice),
            "{toml}: {error}"
        );
    }
}

#[test]
fn a_preview_shows_what_is_sent_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    };
    let settings = format!(
        "kind = 'http'\nurl = 'http://bank.example/pay?api_key=hidden1'\nallow_http = true\n\
         bearer_file = '{}'\nsecret_file = '{}'\nheaders = {{ 'X-Key' = {{ file = '{}' }}, 'X-Tenant' = '7' }}\n\
         query = {{ 'currency' = '{{{{ payload.currency }}}}' }}",
        file("bearer", "hidden2"),
        file("signing", SECRET),
        file("header", "hidden3")
    );
    let rail = crate::harness::rail(&settings);
    let text = rail.preview(&payment()).unwrap().unwrap();
    assert!(text.starts_with("POST http://bank.example/pay?api_key=***&currency=EUR\n"), "{text}");
    for line in [
        "x-tenant: 7\n",
        "x-key: ***\n",
        "authorization: ***\n",
        "webhook-signature: ***\n",
        "idempotency-key: key-1\n",
    ] {
        assert!(text.contains(line), "{line} is not in {text}");
    }
    assert!(text.contains("\n\n{\"instruction_id\":\"instruction-1\""), "{text}");
    assert!(!text.contains("hidden"), "{text}");
    let wrong = Payment { payload: json!({ "amount": 1 }).into(), ..payment() };
    assert!(rail.preview(&wrong).unwrap().is_err());
}
