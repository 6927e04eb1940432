//! The API against its description: schemathesis asks what the description allows and what it does not, and compares every answer with it.
//!
//! The short form asks the same every time. The long one, `SYMPHONY_ASKED=500`, asks about each endpoint so often, from a seed that it prints and takes
//! back as `SYMPHONY_SEED`.

use std::path::Path;
use std::process::{Command, Stdio};

use symphony_proof::kit::tool::{self, Tool};

use crate::office::{Console, Office, RAIL};

/// What is held against the description. The others follow links, which it does not have.
const CHECKS: &str = "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,\
                      response_schema_conformance,negative_data_rejection,positive_data_acceptance,\
                      missing_required_header,unsupported_method,allow_header_conformance,ignored_auth";

/// Outboxes and events in every state.
async fn furnish(office: &Office) {
    for number in 0..5 {
        office.failed(number).await;
        office.unknown(10 + number).await;
        office.dispatched(20 + number).await;
    }
    office.enqueue(30).await;
    office.claim().await;
    office.enqueue(31).await;
    office
        .owner
        .batch_execute(
            "select m10_recovery.publish_outbox('invoice', 'i-' || n, 'Paid', '{}') from generate_series(1, 5) n",
        )
        .await
        .unwrap();
    let paused = format!("select symphony.pause_payment_rail('{RAIL}', 'office', 'a test')");
    office.owner.batch_execute(&paused).await.unwrap();
}

/// Asks as the holder of this token, so often about each endpoint.
fn ask(console: &Console, who: &str, phases: &str, often: &str, seed: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let description = root.join("../../docs/openapi.json");
    let folder = tempfile::tempdir().unwrap();
    let asked = Command::new(tool::find(Tool::Schemathesis).unwrap())
        .arg("--config-file")
        .arg(root.join("tests/console/schemathesis.toml"))
        .arg("run")
        .arg(&description)
        .args(["--url", &format!("http://{}", console.address)])
        .args(["--header", &format!("Authorization: Bearer {}", console.token(who))])
        .args(["--phases", phases, "--max-examples", often, "--seed", seed, "--checks", CHECKS])
        // Time is for machines to have; what is found is shown as it was found.
        .args(["--suppress-health-check", "all", "--no-shrink", "--continue-on-failure"])
        // What it keeps for the next run would make that another one.
        .current_dir(folder.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = [asked.stdout, asked.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).concat();
    assert!(asked.status.success(), "as {who}:\n{said}");
    let all = std::fs::read_to_string(description).unwrap().matches("\"operationId\"").count();
    let tested = said.lines().any(|line| line.trim() == format!("Tested: {all}"));
    assert!(tested, "not all {all} were asked, as {who}:\n{said}");
}

#[tokio::test]
async fn every_answer_is_one_that_the_description_names() {
    let office = Office::open().await;
    furnish(&office).await;
    let console = office.console(&[("all", &["operate", "audit"]), ("reader", &["read"])]).await;
    let often = std::env::var("SYMPHONY_ASKED").unwrap_or_else(|_| "5".to_owned());
    let seed = std::env::var("SYMPHONY_SEED").unwrap_or_else(|_| "1".to_owned());
    println!("SYMPHONY_ASKED={often} SYMPHONY_SEED={seed}");
    ask(&console, "reader", "fuzzing", &often, &seed);
    ask(&console, "all", "examples,coverage,fuzzing", &often, &seed);
}
