//! Bulk redrive of dead letters, and the export of the audit log.

use serde_json::{Value, json};
use symphony_db::payment::{OUTCOME_UNKNOWN, Outcome, RailAnswer};
use symphony_testkit::test_database::Server;

use crate::program::symphony;
use crate::{reason, work};

#[tokio::test]
async fn a_bulk_redrive_needs_the_number_that_a_dry_run_counted() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let (root, url) = (database.url(), database.url_as_login(&["symphony_operator"]).await.unwrap());
    for rail in ["sepa", "ach"] {
        symphony(&root, &["rail", "add", rail, "--actor", "ana", "--reason", "go-live"]).exits(0);
    }
    for (name, rail, code) in [
        ("p1", "sepa", "NO_ACCOUNT"),
        ("p2", "sepa", "NO_ACCOUNT"),
        ("p3", "ach", "NO_ACCOUNT"),
        ("p4", "sepa", OUTCOME_UNKNOWN),
    ] {
        let named =
            ["--instruction", name, "--participant", "acme", "--key", name, "--rail", rail, "--payload", "{}"];
        symphony(&root, &[&["enqueue"], &named[..]].concat()).exits(0);
        work(&database, Outcome::Failed { reason: reason(code), rail: RailAnswer::default() }).await;
    }
    let fit = ["dlq", "redrive", "--rail", "sepa", "--error-code", "NO_ACCOUNT"];
    let with = |more: &[&str]| symphony(&url, &[&fit[..], more].concat());
    let counted = with(&["--dry-run", "--json"]).exits(0).json();
    assert_eq!((&counted["matching"], &counted["redriven"]), (&json!(2), &json!([])));
    assert!(with(&["--dry-run"]).exits(0).stdout.contains("--expect 2"));
    let audit_context = ["--actor", "ana", "--reason", "accounts were corrected"];
    assert!(
        with(&[&["--expect", "3"], &audit_context[..]].concat()).exits(1).stderr.contains("2 match now, not 3")
    );
    with(&["--expect", "2"]).exits(2);
    with(&audit_context).exits(2);
    with(&[&["--expect", "2", "--dry-run"], &audit_context[..]].concat()).exits(2);
    let dead = || symphony(&url, &["dlq", "list", "--json"]).exits(0).json().as_array().unwrap().len();
    assert_eq!(dead(), 4, "nothing was done yet");
    let done = with(&[&["--expect", "2", "--json"], &audit_context[..]].concat()).exits(0).json();
    assert_eq!((done["redriven"].as_array().unwrap().len(), &done["refused"]), (2, &json!([])));
    assert_eq!(dead(), 2, "dead letters of another rail or with an unknown outcome stay");
    database.close().await.unwrap();
}

#[tokio::test]
async fn the_audit_log_is_exported_as_csv_and_as_ndjson() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let auditor = database.url_as_login(&["symphony_auditor"]).await.unwrap();
    let url = database.url();
    symphony(&url, &["rail", "add", "sepa", "--actor", "ana, \"duty\"", "--reason", "=1+1"]).exits(0);
    let range = ["--from", "2020-01-01T00:00Z", "--to", "2099-01-01T00:00Z"];
    let audit = |more: &[&str]| symphony(&auditor, &[&["audit", "operations"], more].concat());
    let csv = audit(&range).exits(0).stdout;
    let lines: Vec<_> = csv.lines().collect();
    assert!(
        lines.len() == 2 && lines[0].starts_with("created_at,") && lines[1].contains("\"ana, \"\"duty\"\"\""),
        "{csv}"
    );
    assert!(lines[1].contains(",'=1+1,"), "{csv}");
    let json: Value =
        serde_json::from_str(&audit(&[&range[..], &["--format", "ndjson"]].concat()).exits(0).stdout).unwrap();
    assert_eq!((&json["reason"], &json["operation"]), (&json!("=1+1"), &json!("REGISTER_RAIL")));
    let (from, to) = (range[1], range[3]);
    assert_eq!(
        audit(&["--from", "2020-01-01T00:00Z", "--to", "2020-01-02T00:00Z"]).exits(0).stdout.lines().count(),
        1
    );
    audit(&["--from", to, "--to", from]).exits(2);
    audit(&["--from", "yesterday", "--to", to]).exits(2);

    let named = [
        "--instruction",
        "p",
        "--participant",
        "acme",
        "--key",
        "k",
        "--rail",
        "sepa",
        "--payload",
        r#"{"iban":"DE02"}"#,
    ];
    symphony(&url, &[&["enqueue"], &named[..]].concat()).exits(0);
    let id = work(&database, Outcome::Dispatched { rail: RailAnswer::default() }).await;
    let timeline = symphony(&auditor, &["audit", "outbox", &id]).exits(0).stdout;
    assert!(
        timeline.lines().count() == 4 && timeline.contains("DISPATCHED") && !timeline.contains("DE02"),
        "{timeline}"
    );
    symphony(&auditor, &["audit", "outbox", "0193f1c2-6f0e-7cc3-98c4-dc0c0c07398f"]).exits(1);
    database.close().await.unwrap();
}
