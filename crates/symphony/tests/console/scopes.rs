//! Every endpoint with every token. The list is the API's own, so that a new endpoint cannot be forgotten here.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

use crate::fixture::Fixture;
use crate::http;

/// A path with sample parameters, which need not exist: the test is about access.
fn concrete(path: &str) -> String {
    path.replace("{outbox_id}", "0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f")
        .replace("{rail_type}", "nowhere")
        .replace("{participant_id}", "unknown")
        .replace("{event_id}", "1")
        .replace("{entry_id}", "0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f")
}

#[tokio::test]
async fn every_endpoint_is_answered_for_its_scope_and_for_no_other() {
    let fixture = Fixture::new().await;
    let holders: [(&str, &[&str]); 3] =
        [("reader", &["read"]), ("operator", &["operate"]), ("auditor", &["audit"])];
    let console = fixture.console(&holders).await;
    let description = console.get("reader", "/openapi.json").await;
    let mut asked = 0;
    for (path, operations) in description["paths"].as_object().unwrap() {
        for (method, operation) in operations.as_object().unwrap() {
            let scope = operation["security"][0]["token"][0].as_str().unwrap();
            let (method, path) = (method.to_uppercase(), concrete(path));
            // The handler refuses an empty body, so nothing changes.
            console.ask("", &method, &path, "").await.refused(401);
            for (name, has) in holders {
                let answer = console.ask(name, &method, &path, "").await;
                if scope == "read" || has.contains(&scope) {
                    assert!(![401, 403].contains(&answer.status), "{name} {method} {path}: {answer:?}");
                } else {
                    let words = answer.refused(403);
                    assert!(words.contains(scope), "{name} {method} {path}: {words}");
                }
            }
            asked += 1;
        }
    }
    assert!(asked >= 28, "{asked} endpoints are described");
    let wrong = [("authorization", "Bearer sym_wrong")];
    http::ask(console.address, "GET", "/api/v1/overview", &wrong, "").await.refused(401);
    console.ask("reader", "GET", "/api/v1/nowhere", "").await.refused(404);
}

#[test]
fn the_openapi_file_in_docs_is_the_one_of_this_build() {
    let output = Command::new(env!("CARGO_BIN_EXE_symphony")).arg("api").output().unwrap();
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    let same = kept == String::from_utf8(output.stdout.clone()).unwrap();
    assert!(same, "docs/openapi.json is out of date: write it with: symphony api > docs/openapi.json");
    let description: Value = serde_json::from_str(&kept).unwrap();
    assert_eq!(description["openapi"], "3.1.0");
    // Every reference has its definition.
    let schemas = description["components"]["schemas"].as_object().unwrap();
    for reference in kept.split("\"$ref\": \"#/components/schemas/").skip(1) {
        let name = reference.split('"').next().unwrap();
        assert!(schemas.contains_key(name), "{name} is not described");
    }
}
