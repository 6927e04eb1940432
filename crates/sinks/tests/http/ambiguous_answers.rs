//! Responses that parsers read in different ways: the outcome is unknown, whatever the status.

use crate::harness::{assert_accepted, assert_inconclusive, assert_unknown, http, payment, rail_to, respond_with};

const PAID: &str = r#"{"status": "EXECUTED", "reference": "R1"}"#;

/// Bodies that one parser reads as paid or refused, and another does not.
fn bodies() -> Vec<Vec<u8>> {
    let deep = format!(r#"{{"status": "EXECUTED", "x": {}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let mut bodies: Vec<Vec<u8>> = [
        // A duplicate key.
        r#"{"status": "REFUSED", "status": "EXECUTED"}"#,
        r#"{"status": "EXECUTED", "status": "REFUSED"}"#,
        r#"{"status": "EXECUTED", "status": "EXECUTED"}"#,
        r#"{"status": "REFUSED", "\u0073tatus": "EXECUTED"}"#,
        r#"{"status": "EXECUTED", "error": {"code": "A", "code": "B"}}"#,
        r#"{"status": "EXECUTED", "errors": [{"code": "A"}, {"code": "A", "code": "B"}]}"#,
        // More than one document.
        r#"{"status": "EXECUTED"}{"status": "REFUSED"}"#,
        "{\"status\": \"EXECUTED\"}\n{\"status\": \"REFUSED\"}",
        r#"{"status": "EXECUTED"} REFUSED"#,
        r#"{"status": "EXECUTED"},"#,
        "{\"status\": \"EXECUTED\"}\0",
        // Almost JSON.
        r#"{"status": "EXECUTED",}"#,
        r#"{"status": 'EXECUTED'}"#,
        r#"{"status": "EXECUTED" /* "REFUSED" */}"#,
        r#"{"status": "EXECUTED", "x": NaN}"#,
        r#"{"status": "EXECUTED", "x": "\ud800"}"#,
        "\u{feff}{\"status\": \"EXECUTED\"}",
        &deep,
    ]
    .map(Vec::from)
    .into();
    bodies.push(b"{\"status\": \"EXECUTED\", \"x\": \"\xff\"}".to_vec());
    bodies.push(b"{\"status\": \"EXECUTED\", \"\xff\": 1}".to_vec());
    bodies
}

fn response(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut response =
        format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    response.extend_from_slice(body);
    response
}

#[tokio::test]
async fn an_ambiguous_response_to_a_payment_is_an_unknown_outcome() {
    let more = "answer_limit_bytes = 1000000\nanswer_body = 'any'\noutcomes = { '409' = 'retryable' }";
    for body in bodies() {
        // Whatever the status alone would mean: accepted, refused or retryable.
        for status in [200, 201, 422, 409, 429] {
            let (address, _) = respond_with(response(status, "", &body)).await;
            let got = rail_to(address, more).dispatch(&payment()).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            println!("{status} {shown}");
            assert_unknown(&got);
        }
    }
}

#[tokio::test]
async fn an_ambiguous_response_to_an_inquiry_says_nothing() {
    let more = "answer_limit_bytes = 1000000\ninquiry = { '200' = 'executed', '404' = 'never_seen' }";
    for body in bodies() {
        for status in [200, 404] {
            let (address, _) = respond_with(response(status, "", &body)).await;
            let got = rail_to(address, more).inquire(&payment()).await;
            println!("{status} {}", String::from_utf8_lossy(&body[..body.len().min(80)]));
            assert_inconclusive(&got);
        }
    }
}

#[tokio::test]
async fn a_code_and_a_status_that_contradict_each_other_are_an_unknown_outcome() {
    let table = "outcomes = { '200 OK' = 'executed', '200 REFUSED' = 'refused', '200 FINE' = 'executed' }";
    for body in [r#"{"code": "OK", "status": "REFUSED"}"#, r#"{"code": "REFUSED", "status": "OK"}"#] {
        let (address, _) = respond_with(http(200, "", body)).await;
        assert_unknown(&rail_to(address, table).dispatch(&payment()).await);
    }
    let (address, _) = respond_with(http(200, "", r#"{"code": "OK", "status": "FINE"}"#)).await;
    assert_accepted(&rail_to(address, table).dispatch(&payment()).await);
}

#[tokio::test]
async fn contradictory_headers_are_an_unknown_outcome() {
    // Two lengths, one of which ends the body early.
    let (address, _) = respond_with(response(201, "Content-Length: 2\r\n", br#"{"status": "EXECUTED"}"#)).await;
    assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    // A 503 is retryable only with one valid Retry-After.
    let twice = "Retry-After: 1\r\nRetry-After: 86400\r\n";
    let (address, _) = respond_with(response(503, twice, b"{}")).await;
    assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    let (address, _) = respond_with(response(201, "X-A: 1\r\nX-A: 2\r\n", PAID.as_bytes())).await;
    assert_accepted(&rail_to(address, "").dispatch(&payment()).await);
}
