//! The API against its OpenAPI description: schemathesis sends valid and invalid requests and checks every response.
//!
//! By default it sends the same requests every time. `SYMPHONY_REQUESTS=500` sends that many to each endpoint, from the
//! seed `SYMPHONY_SEED`, which it prints.

use std::path::Path;
use std::process::{Command, Stdio};

use symphony_testkit::tool::{self, Tool};

use crate::fixture::{Console, Fixture, RAIL};

/// The checks of schemathesis. The others follow links, which the description does not have.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,positive_data_acceptance,\
                      missing_required_header,unsupported_method,allow_header_conformance,ignored_auth";

/// Outboxes and events in every state.
async fn add_rows(fixture: &Fixture) {
    for number in 0..5 {
        fixture.failed(number).await;
        fixture.unknown(10 + number).await;
        fixture.dispatched(20 + number).await;
    }
    fixture.enqueue(30).await;
    fixture.claim().await;
    fixture.enqueue(31).await;
    fixture
        .owner
        .batch_execute(
            "select m10_recovery.publish_outbox('invoice', 'i-' || n, 'Paid', '{}') from generate_series(1, 5) n",
        )
        .await
        .unwrap();
    let paused = format!("select symphony.pause_payment_rail('{RAIL}', 'fixture', 'a test')");
    fixture.owner.batch_execute(&paused).await.unwrap();
}

/// Runs schemathesis with this token and this number of requests per endpoint.
fn run_schemathesis(console: &Console, who: &str, phases: &str, requests: &str, seed: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let description = root.join("../../docs/openapi.json");
    let folder = tempfile::tempdir().unwrap();
    let output = Command::new(tool::find(Tool::Schemathesis).unwrap())
        .arg("--config-file")
        .arg(root.join("tests/console/schemathesis.toml"))
        .arg("run")
        .arg(&description)
        .args(["--url", &format!("http://{}", console.address)])
        .args(["--header", &format!("Authorization: Bearer {}", console.token(who))])
        .args(["--phases", phases, "--max-examples", requests, "--seed", seed, "--checks", CHECKS])
        // Slow machines are no failure, and a finding is reported without shrinking.
        .args(["--suppress-health-check", "all", "--no-shrink", "--continue-on-failure"])
        // What it stores for the next run would change that run.
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let report = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(output.status.success(), "as {who}:\n{report}");
    let all = std::fs::read_to_string(description).unwrap().matches("\"operationId\"").count();
    let tested = report.lines().any(|line| line.trim() == format!("Tested: {all}"));
    assert!(tested, "not all {all} endpoints were tested, as {who}:\n{report}");
}

#[tokio::test]
async fn every_response_matches_the_openapi_description() {
    let fixture = Fixture::new().await;
    add_rows(&fixture).await;
    let console = fixture.console(&[("all", &["operate", "audit"]), ("reader", &["read"])]).await;
    let requests = std::env::var("SYMPHONY_REQUESTS").unwrap_or_else(|_| "5".to_owned());
    let seed = std::env::var("SYMPHONY_SEED").unwrap_or_else(|_| "1".to_owned());
    println!("SYMPHONY_REQUESTS={requests} SYMPHONY_SEED={seed}");
    run_schemathesis(&console, "reader", "fuzzing", &requests, &seed);
    run_schemathesis(&console, "all", "examples,coverage,fuzzing", &requests, &seed);
}
