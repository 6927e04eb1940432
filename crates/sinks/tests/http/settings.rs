//! An invalid setting is refused with its name and what to write instead.

use crate::harness::{payment, rail, refusal};

const URL: &str = "kind = 'http'\nurl = 'https://bank.example/'\n";
/// Needs no trusted certificate authority, and so works on a machine without system roots.
const WITHOUT_TLS: &str = "kind = 'http'\nurl = 'http://bank.example/'\nallow_http = true\n";

#[test]
fn an_invalid_setting_is_named_with_what_to_write() {
    for (toml, setting, advice) in [
        ("timeout = 30", "timeout", "\"30s\""),
        ("timeout = '0s'", "timeout", "above zero"),
        ("timeout = '11m'", "timeout", "at most \"10m\""),
        ("timeout = '5s'", "connect_timeout", "shorter than timeout"),
        ("connect_timeout = '0s'", "connect_timeout", "above zero"),
        ("idle_timeout = '0s'", "idle_timeout", "leave it out"),
        ("idle_connections = 0", "idle_connections", "from 1"),
        ("answer_limit_bytes = 0", "answer_limit_bytes", "from 1 to 16777216"),
        ("retry_after_cap = '721h'", "retry_after_cap", "\"720h\""),
        ("endpoint = ''", "endpoint", "1 to 100"),
        ("endpoint = 'bank#7'", "endpoint", "without blanks and #"),
        ("destination = 'bic'", "destination", "`iban`"),
        ("outcomes = { '2xx' = 'accepted' }", "outcomes.\"2xx\"", "\"409 DUPLICATE\""),
        ("outcomes = { '200' = 'paid' }", "outcomes", "`accepted`"),
        ("inquiry = { '200 X' = 'accepted' }", "inquiry", "`executed`"),
        ("allow_private = ['10.0.0.1/8']", "allow_private", "10.0.0.0/8"),
        ("inquiry_url = 'https://bank.example/'", "inquiry_url", "{idempotency_key}"),
        ("idempotency_header = 'Content-Type'", "idempotency_header", "Idempotency-Key"),
        ("idempotency_header = 'a b'", "idempotency_header", "name of a header"),
        ("headers = { 'Host' = 'x' }", "headers.Host", "leave it out"),
        ("headers = { 'webhook-id' = 'x' }", "headers.webhook-id", "leave it out"),
        ("headers = { 'x' = 5 }", "headers", "file"),
        ("headers = { 'x' = \"a\\nb\" }", "headers.x", "printable"),
        ("bearer_env = 'SYMPHONY_NO_SUCH_VARIABLE'", "bearer_env", "set it"),
        ("bearer_env = 'A'\nbearer_file = 'B'", "bearer_env", "keep one"),
        ("secret_file = '/no/such/file'", "secret_file", "can be read"),
        ("root_ca_file = '/no/such/file'", "root_ca_file", "PEM"),
        ("system_roots = false", "root_ca_file", "must name a file"),
        ("client_key_file = 'x'", "client_certificate_file", "must be set with"),
        ("code_key = ''", "code_key", "JSON pointer"),
        ("redirects = true", "redirects", "unknown field"),
    ] {
        let error = refusal(&format!("{URL}{toml}"));
        assert!(error.starts_with(&format!("rail sepa: {setting}")) && error.contains(advice), "{toml}: {error}");
    }
    assert!(refusal("kind = 'http'").starts_with("rail sepa: url: missing field"));
}

#[test]
fn a_rail_without_an_inquiry_url_has_no_inquiries() {
    assert!(!rail(WITHOUT_TLS).supports_inquiry());
    assert!(
        rail(&format!("{WITHOUT_TLS}inquiry_url = 'http://bank.example/{{idempotency_key}}'")).supports_inquiry()
    );
}

#[test]
fn an_endpoint_is_named_by_its_address_and_account_and_by_no_secret() {
    let endpoint = |toml: &str| rail(&format!("kind = 'http'\nallow_http = true\n{toml}")).endpoint().unwrap();
    let bank = endpoint("url = 'http://bank.example/pay'");
    assert!(bank.as_str().starts_with("bank.example#"), "{bank}");
    for same in [
        "url = 'http://BANK.example:80/pay?api_key=hidden'",
        "url = 'http://bank.example/pay'\nheaders = { 'X-Tenant' = '7' }\ntimeout = '7s'",
    ] {
        assert_eq!(endpoint(same), bank, "{same}");
    }
    let inquiry = "inquiry_url = 'http://bank.example/find?key={idempotency_key}'";
    let others = [
        "url = 'http://other.example/pay'".to_owned(),
        "url = 'http://bank.example:81/pay'".to_owned(),
        "url = 'http://bank.example/v2/pay'".to_owned(),
        "url = 'http://bank.example/pay'\nendpoint = 'account-7'".to_owned(),
        format!("url = 'http://bank.example/pay'\n{inquiry}"),
    ];
    for other in others {
        assert_ne!(endpoint(&other), bank, "{other}");
    }
    assert!(
        endpoint("url = 'http://bank.example/pay'\nendpoint = 'account-7'").as_str().starts_with("account-7#")
    );
}

#[test]
fn a_payment_is_validated_before_it_is_sent() {
    let rail = rail(&format!("{WITHOUT_TLS}destination = 'iban'"));
    rail.validate(&payment()).unwrap();
    for (json, field) in [
        (r#"{"amount": 10.00, "currency": "EUR"}"#, "amount"),
        (r#"{"amount": "10.001", "currency": "EUR"}"#, "amount"),
        (r#"{"amount": "10.00", "currency": "EURO"}"#, "currency"),
        (
            r#"{"amount": "10.00", "currency": "EUR", "destination": {"iban": "DE00370400440532013000"}}"#,
            "destination.iban",
        ),
    ] {
        let wrong = symphony_relay::rail::Payment { payload: serde_json::from_str(json).unwrap(), ..payment() };
        assert!(rail.validate(&wrong).unwrap_err().message.starts_with(field), "{json}");
    }
}
