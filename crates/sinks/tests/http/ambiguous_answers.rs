//! Answers that can be read in two ways: the outcome is unknown, whatever the status says.

use crate::kit::{answering, assert_accepted, assert_unknown, assert_unsaid, http, payment, rail_to};

const PAID: &str = r#"{"status": "EXECUTED", "reference": "R1"}"#;

/// Bodies of which one reading is a paid or refused payment, and another is not.
fn bodies() -> Vec<Vec<u8>> {
    let deep = format!(r#"{{"status": "EXECUTED", "x": {}1{}}}"#, "[".repeat(100_000), "]".repeat(100_000));
    let mut bodies: Vec<Vec<u8>> = [
        // One key twice.
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
        // Not quite JSON.
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

fn answer(status: u16, headers: &str, body: &[u8]) -> Vec<u8> {
    let mut answer =
        format!("HTTP/1.1 {status} X\r\n{headers}Content-Length: {}\r\n\r\n", body.len()).into_bytes();
    answer.extend_from_slice(body);
    answer
}

#[tokio::test]
async fn an_answer_that_can_be_read_in_two_ways_is_unknown_to_a_dispatch() {
    let more = "answer_limit_bytes = 1000000\nanswer_body = 'any'\noutcomes = { '409' = 'later' }";
    for body in bodies() {
        // Whatever follows from the status: paid, refused, or "send it again".
        for status in [200, 201, 422, 409, 429] {
            let (address, _) = answering(answer(status, "", &body)).await;
            let got = rail_to(address, more).dispatch(&payment()).await;
            let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
            println!("{status} {shown}");
            assert_unknown(&got);
        }
    }
}

#[tokio::test]
async fn an_answer_that_can_be_read_in_two_ways_says_nothing_to_an_inquiry() {
    let more = "answer_limit_bytes = 1000000\ninquiry = { '200' = 'executed', '404' = 'never_seen' }";
    for body in bodies() {
        for status in [200, 404] {
            let (address, _) = answering(answer(status, "", &body)).await;
            let got = rail_to(address, more).inquire(&payment()).await;
            println!("{status} {}", String::from_utf8_lossy(&body[..body.len().min(80)]));
            assert_unsaid(&got);
        }
    }
}

#[tokio::test]
async fn a_code_and_a_status_that_mean_different_things_are_unknown() {
    let table = "outcomes = { '200 OK' = 'accepted', '200 REFUSED' = 'refused', '200 FINE' = 'accepted' }";
    for body in [r#"{"code": "OK", "status": "REFUSED"}"#, r#"{"code": "REFUSED", "status": "OK"}"#] {
        let (address, _) = answering(http(200, "", body)).await;
        assert_unknown(&rail_to(address, table).dispatch(&payment()).await);
    }
    let (address, _) = answering(http(200, "", r#"{"code": "OK", "status": "FINE"}"#)).await;
    assert_accepted(&rail_to(address, table).dispatch(&payment()).await);
}

#[tokio::test]
async fn headers_that_contradict_each_other_are_not_believed() {
    // Two lengths, of which one ends the answer before what it says.
    let (address, _) = answering(answer(201, "Content-Length: 2\r\n", br#"{"status": "EXECUTED"}"#)).await;
    assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    // A 503 counts as "nothing was paid" only with one Retry-After that can be read.
    let twice = "Retry-After: 1\r\nRetry-After: 86400\r\n";
    let (address, _) = answering(answer(503, twice, b"{}")).await;
    assert_unknown(&rail_to(address, "").dispatch(&payment()).await);
    let (address, _) = answering(answer(201, "X-A: 1\r\nX-A: 2\r\n", PAID.as_bytes())).await;
    assert_accepted(&rail_to(address, "").dispatch(&payment()).await);
}
