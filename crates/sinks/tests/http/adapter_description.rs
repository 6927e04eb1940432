//! `docs/adapter-openapi.json`: what it says of requests and responses is what the rail sends and understands.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use serde_json::Value;
use symphony_relay::rail::{Answer, Inquiry, Rail};
use tokio::io::AsyncWriteExt as _;

use crate::harness::{http, listen, payment, rail_to, read_request, respond_with};

const DESCRIPTION: &str = include_str!("../../../../docs/adapter-openapi.json");

fn description() -> Value {
    serde_json::from_str(DESCRIPTION).unwrap()
}

/// Follows a reference inside the description.
fn resolve<'a>(root: &'a Value, value: &'a Value) -> &'a Value {
    match value["$ref"].as_str() {
        Some(reference) => root.pointer(reference.strip_prefix('#').unwrap()).unwrap(),
        None => value,
    }
}

/// Every example of an operation's responses: status, headers, body, and the class that it claims.
fn examples(operation: &Value) -> Vec<(u16, String, String, String)> {
    let root = description();
    let mut found = Vec::new();
    for (status, response) in operation["responses"].as_object().unwrap() {
        let response = resolve(&root, response);
        // Any other status.
        let status = if status == "default" { 500 } else { status.parse().unwrap() };
        let mut headers = String::new();
        for (name, header) in response["headers"].as_object().into_iter().flatten() {
            let value = if name == "Retry-After" { "7" } else { "true" };
            assert!(header.is_object());
            headers.push_str(&format!("{name}: {value}\r\n"));
        }
        for example in response["content"]["application/json"]["examples"].as_object().unwrap().values() {
            let class = example["x-symphony-class"].as_str().unwrap().to_owned();
            found.push((status, headers.clone(), example["value"].to_string(), class));
        }
    }
    assert!(found.len() > 5, "{found:?}");
    found
}

async fn rail_answered_with(status: u16, headers: &str, body: &str) -> Arc<dyn Rail> {
    let (address, _) = respond_with(http(status, headers, body)).await;
    rail_to(address, "")
}

#[tokio::test]
async fn each_response_to_a_payment_has_the_class_that_the_description_says() {
    let description = description();
    for (status, headers, body, class) in examples(&description["paths"]["/payments"]["post"]) {
        let answer = rail_answered_with(status, &headers, &body).await.dispatch(&payment()).await;
        let actual = match &answer {
            Answer::Executed(_) | Answer::ExecutedBefore(_) => "executed",
            Answer::AwaitingConfirmation(_) => "accepted",
            Answer::Refused { .. } => "refused",
            Answer::Retryable { .. } => "retryable",
            Answer::Unknown { .. } => "unknown",
        };
        assert_eq!(actual, class, "{status} {body}: {answer:?}");
    }
}

#[tokio::test]
async fn each_response_to_an_inquiry_has_the_class_that_the_description_says() {
    let description = description();
    for (status, headers, body, class) in examples(&description["paths"]["/payments/{idempotency_key}"]["get"]) {
        let inquiry = rail_answered_with(status, &headers, &body).await.inquire(&payment()).await;
        let actual = match &inquiry {
            Inquiry::Executed(_) => "executed",
            Inquiry::Refused { .. } => "refused",
            Inquiry::NeverSeen => "never_seen",
            Inquiry::Pending { .. } | Inquiry::NoAnswer { .. } => "inconclusive",
        };
        assert_eq!(actual, class, "{status} {body}: {inquiry:?}");
    }
}

/// A server that keeps each request, and answers none of them usefully.
async fn recorder() -> (SocketAddr, Arc<Mutex<Vec<(String, String)>>>) {
    let requests = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&requests);
    let (address, _) = listen(move |mut stream| {
        let kept = Arc::clone(&kept);
        async move {
            if let Some(request) = read_request(&mut stream).await {
                kept.lock().unwrap().push(request);
                let _ = stream.write_all(http(500, "", "{}").as_bytes()).await;
            }
        }
    })
    .await;
    (address, requests)
}

#[tokio::test]
async fn the_described_headers_and_fields_are_those_that_are_sent() {
    let (address, requests) = recorder().await;
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let rail = rail_to(address, &format!("secret_file = {secret:?}"));
    rail.dispatch(&payment()).await;
    rail.inquire(&payment()).await;

    let root = description();
    let requests = requests.lock().unwrap().clone();
    let operations = [&root["paths"]["/payments"]["post"], &root["paths"]["/payments/{idempotency_key}"]["get"]];
    for ((head, _), operation) in requests.iter().zip(operations) {
        let parameters = operation["parameters"].as_array().unwrap().iter().map(|one| resolve(&root, one));
        let described: BTreeSet<_> = parameters
            .filter(|one| one["in"] == "header" && one["required"] == true)
            .map(|one| one["name"].as_str().unwrap().to_lowercase())
            .collect();
        let sent: BTreeSet<_> = head
            .lines()
            .filter_map(|line| Some(line.split_once(':')?.0.to_lowercase()))
            .filter(|name| {
                name == "idempotency-key" || name.starts_with("webhook-") || name.starts_with("symphony-")
            })
            .collect();
        assert_eq!(sent, described, "{head}");
    }
    let body: Value = serde_json::from_str(&requests[0].1).unwrap();
    let schema = &root["components"]["schemas"]["Payment"];
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let required: BTreeSet<_> =
        schema["required"].as_array().unwrap().iter().map(|name| name.as_str().unwrap().to_owned()).collect();
    assert_eq!(names(&body), required);
    assert_eq!(names(&schema["properties"]), required);
    let example = &root["paths"]["/payments"]["post"]["requestBody"]["content"]["application/json"]["examples"];
    assert_eq!(names(&example["payment"]["value"]), required);
}
