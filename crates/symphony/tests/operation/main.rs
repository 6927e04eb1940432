//! The operator commands on one payment: enqueue, an expired lease, a dead letter, a redrive, and what each command shows.
//!
//! # Layout
//! - [`bulk_redrive`]: bulk redrive, and the export of the audit log
//! - [`cancellation`]: what a producer does after the enqueue, and a redrive under a new key
//! - [`epoch`]: `symphony recover`
//! - [`erasure`]: `symphony erase`
//! - [`late_commit`]: exports, and transactions that are open while they run
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod bulk_redrive;
mod cancellation;
mod epoch;
mod erasure;
mod late_commit;
#[path = "../program/mod.rs"]
mod program;

use std::time::Duration;

use program::symphony;
use serde_json::{Value, json};
use symphony_db::payment::{Completion, OUTCOME_UNKNOWN, Outcome, RailAnswer, Reason, worker};
use symphony_db::{BatchSize, WorkerId};
use symphony_testkit::bulk_rows;
use symphony_testkit::process::{Launch, Program};
use symphony_testkit::proxy::{NewConnections, Proxy};
use symphony_testkit::test_database::{Database, Server};
use symphony_testkit::wait::DEFAULT_TIMEOUT;

/// Claims the one due payment, and completes it with this outcome.
async fn work(database: &Database, outcome: Outcome) -> String {
    let client = database.connect_as("symphony_executor").await.unwrap();
    let name = WorkerId::from("worker-1");
    let mut claimed = worker::claim(&client, &name, BatchSize::MAX, Duration::from_secs(60)).await.unwrap();
    assert_eq!(claimed.len(), 1);
    let claimed = claimed.remove(0);
    let completion = Completion { lease: claimed.lease(), outcome, latency: Some(Duration::from_millis(7)) };
    worker::complete(&client, &name, &completion).await.unwrap();
    claimed.outbox_id.to_string()
}

fn reason(code: &str) -> Reason {
    Reason { code: code.into(), message: Some("no answer\u{1b}[31m".into()) }
}

fn events(timeline: &Value) -> Vec<&str> {
    timeline["events"].as_array().unwrap().iter().map(|event| event["event"].as_str().unwrap()).collect()
}

#[tokio::test]
async fn inspect_shows_a_payment_from_its_enqueue_to_its_redrive() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    // Each command with the role that it names, and no other.
    let till = database.url_as_login(&["symphony_ingest"]).await.unwrap();
    let duty = database.url_as_login(&["symphony_operator"]).await.unwrap();
    let reader = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let audit_context = ["--actor", "ana", "--reason", "the statement of today", "--json"];

    let rail =
        symphony(&duty, &[&["rail", "add", "sepa", "--max-attempts", "3"], &audit_context[..]].concat()).exits(0);
    assert_eq!(rail.json()["max_attempts"], 3);
    let enqueue = [
        "enqueue",
        "--instruction",
        "pay-1",
        "--participant",
        "acme",
        "--key",
        "k1",
        "--rail",
        "sepa",
        "--payload",
        r#"{"iban":"DE02"}"#,
        "--json",
    ];
    let enqueued = symphony(&till, &enqueue).exits(0).json();
    let outbox = enqueued["outbox_id"].as_str().unwrap().to_owned();
    assert_eq!(symphony(&reader, &["status", "--json"]).exits(0).json()["due_unleased_count"], 1);

    let failed = Outcome::Failed { reason: reason(OUTCOME_UNKNOWN), rail: RailAnswer::default() };
    assert_eq!(work(&database, failed).await, outbox);
    let dead = symphony(&reader, &["dlq", "list", "--json"]).exits(0).json();
    assert_eq!((&dead[0]["outbox_id"], &dead[0]["outcome_unknown"]), (&json!(outbox), &json!(true)));
    let status = symphony(&reader, &["status"]).exits(0).stdout;
    assert!(status.contains("sepa") && status.contains("all payments"), "{status}");

    let redrive = [&["dlq", "redrive", &outbox], &audit_context[..]].concat();
    let refused = symphony(&duty, &redrive).exits(3);
    assert!(
        refused.stderr.contains("\"sqlstate\":\"P7003\"") && refused.stderr.contains("\"hint\":\"Ask the bank"),
        "{}",
        refused.all()
    );
    symphony(&duty, &[&["dlq", "resolve", &outbox, "--as", "NOT_PAID"], &audit_context[..]].concat()).exits(0);
    let again = symphony(&duty, &redrive).exits(0).json()["outbox_id"].as_str().unwrap().to_owned();
    let rail = RailAnswer { reference: Some("ref-9".into()), code: Some("ACSC".into()) };
    assert_eq!(work(&database, Outcome::Dispatched { rail }).await, again);

    // By either outbox and by the instruction: the same history, without a payload.
    let timeline = symphony(&reader, &["inspect", "pay-1", "--json"]).exits(0);
    for id in [&outbox, &again] {
        assert_eq!(symphony(&reader, &["inspect", id, "--json"]).exits(0).json(), timeline.json());
    }
    let attempt = ["ENQUEUED", "LEASE_CLAIMED", "ATTEMPT_COMPLETED"];
    assert_eq!(events(&timeline.json()), [&attempt[..], &["REDRIVEN"], &attempt[..]].concat());
    assert_eq!(timeline.json()["operations"].as_array().unwrap().len(), 2);
    let text = symphony(&reader, &["inspect", "pay-1"]).exits(0).stdout;
    for seen in [
        "CLAIMED by worker-1, attempt 1",
        "FAILED by worker-1, attempt 1, error OUTCOME_UNKNOWN, after 7 ms, login postgres: no answer",
        "RESOLVED as NOT_PAID by ana",
        &format!("REDRIVEN as {again} by ana"),
        &format!("ENQUEUED by a redrive of {outbox}"),
        "DISPATCHED by worker-1, attempt 1, rail reference ref-9, rail code ACSC",
    ] {
        assert!(text.contains(seen), "{seen}: {text}");
    }
    assert!(!text.contains('\u{1b}') && !text.contains("DE02") && !timeline.stdout.contains("DE02"), "{text}");
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_rail_is_paused_and_resumed_and_what_waits_says_so() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let url = database.url();
    let audit_context = ["--actor", "ana", "--reason", "the bank is down"];
    let rail = |action: &[&str]| symphony(&url, &[&["rail"], action, &audit_context[..]].concat()).exits(0);
    rail(&["add", "sepa", "--max-in-flight", "5", "--ordered", "true"]);
    assert!(rail(&["set", "sepa", "--max-in-flight", "none"]).stdout.contains("no limit"));
    let enqueue = [
        "enqueue",
        "--instruction",
        "pay-1",
        "--participant",
        "acme",
        "--key",
        "k1",
        "--rail",
        "sepa",
        "--payload",
        "{}",
    ];
    symphony(&url, &enqueue).exits(0);
    rail(&["pause", "sepa"]);
    assert!(symphony(&url, &["inspect", "pay-1"]).exits(0).stdout.contains("now: PAUSED"));
    assert_eq!(symphony(&url, &["status", "--json"]).exits(0).json()["rails"][0]["paused"], true);
    rail(&["resume", "sepa"]);
    assert!(symphony(&url, &["inspect", "pay-1"]).exits(0).stdout.contains("now: DUE"));
    // A clock that was ahead has scheduled it.
    let later = "update symphony.payment_outbox_pending set next_attempt_at = now() + interval '1 hour'";
    database.connect().await.unwrap().batch_execute(later).await.unwrap();
    assert!(symphony(&url, &["inspect", "pay-1"]).exits(0).stdout.contains("now: SCHEDULED"));
    assert_eq!(rail(&["expedite", "sepa", "--json"]).json(), json!({"made_due": 1}));
    assert!(symphony(&url, &["inspect", "pay-1"]).exits(0).stdout.contains("now: DUE"));
    assert_eq!(rail(&["expedite", "sepa"]).stdout, "0 payments are due now\n");
    let listed = symphony(&url, &["rail", "list", "--json"]).exits(0).json();
    assert_eq!((&listed[0]["rail_type"], &listed[0]["ordered"]), (&json!("sepa"), &json!(true)));
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_mistyped_rail_is_refused_with_the_name_that_was_meant_and_one_that_was_added_can_be_retired() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let url = database.url_as_login(&["symphony_operator"]).await.unwrap();
    let rail =
        |action: &[&str]| symphony(&url, &[&["rail"], action, &["--actor", "ana", "--reason", "a test"]].concat());
    rail(&["add", "sepa"]).exits(0);
    for action in ["set", "pause", "resume", "expedite", "retire"] {
        let refused = rail(&[action, "sepaa"]).exits(1);
        assert!(refused.stderr.contains("sepaa is not registered"), "{}", refused.all());
        assert!(refused.stderr.contains("did you mean sepa?"), "{}", refused.all());
    }
    assert!(rail(&["add", "sepa"]).exits(3).stderr.contains("registered already"));

    rail(&["add", "sepaa"]).exits(0);
    rail(&["retire", "sepaa"]).exits(0);
    let names = |arguments: &[&str]| {
        let listed = symphony(&url, &[&["rail", "list", "--json"], arguments].concat()).exits(0).json();
        listed
            .as_array()
            .unwrap()
            .iter()
            .map(|rail| rail["rail_type"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(
        (names(&[]), names(&["--all"])),
        (vec!["sepa".to_owned()], vec!["sepa".to_owned(), "sepaa".to_owned()])
    );
    assert!(symphony(&url, &["rail", "list", "--all"]).exits(0).stdout.contains("retired"));
    database.close().await.unwrap();
}

#[tokio::test]
async fn names_in_the_database_cannot_send_control_characters_to_the_terminal() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let url = database.url();
    let (rail, id) = ("se\u{1b}[2Jpa", "pay\u{1b}[31m-1");
    let set = ["rail", "add", rail, "--actor", "a\u{1b}[1mna", "--reason", "a test"];
    let enqueue = ["enqueue", "--instruction", id, "--participant", id, "--key", "k", "--rail", rail, "--payload"];
    let mut output = vec![symphony(&url, &set).exits(0)];
    symphony(&url, &[&enqueue[..], &["{}"]].concat()).exits(0);
    work(&database, Outcome::Failed { reason: reason("E\u{1b}[7m"), rail: RailAnswer::default() }).await;
    for command in [&["rail", "list"][..], &["status"], &["dlq", "list"], &["inspect", id]] {
        output.push(symphony(&url, command).exits(0));
    }
    // The refusal names the instruction.
    output.push(symphony(&url, &[&enqueue[..], &["{\"other\": 1}"]].concat()).exits(3));
    for ran in output {
        assert!(!ran.all().contains('\u{1b}') && ran.all().contains('\u{fffd}'), "{}", ran.all());
    }
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_login_without_the_role_is_told_which_it_needs() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let no_role = database.url_as_login(&[]).await.unwrap();
    let audit_context = ["--actor", "a", "--reason", "b"];
    for (arguments, role) in [
        (vec!["status"], "symphony_readonly"),
        (vec!["inspect", "x"], "symphony_readonly"),
        ([&["rail", "set", "sepa"], &audit_context[..]].concat(), "symphony_operator"),
        (
            vec![
                "enqueue",
                "--instruction",
                "i",
                "--participant",
                "p",
                "--key",
                "k",
                "--rail",
                "r",
                "--payload",
                "{}",
            ],
            "symphony_ingest",
        ),
    ] {
        let refused = symphony(&no_role, &arguments).exits(3);
        assert!(refused.stderr.contains(&format!("grant {role} to")), "{arguments:?}: {}", refused.all());
    }
    database.close().await.unwrap();
}

/// Starts `symphony status --watch`.
fn watching(url: &str, arguments: &str) -> Program {
    let command = format!("{} status --watch 1 {arguments}", env!("CARGO_BIN_EXE_symphony"));
    Launch::new("/bin/sh").args(["-c", &command]).env("DATABASE_URL", url).env("TERM", "xterm").start().unwrap()
}

#[tokio::test]
async fn the_status_shows_every_installed_lane_and_no_other() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let root = database.connect().await.unwrap();
    root.batch_execute(
        "select m10_recovery.publish_outbox('order', 'o-1', 'OrderPlaced', '{}'); \
         select symphony.create_metadata_entry('customer', 'c-1', '{}')",
    )
    .await
    .unwrap();
    let reader = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let seen = symphony(&reader, &["status", "--json"]).exits(0).json();
    assert_eq!(
        (&seen["due_unleased_count"], &seen["events"]["due"], &seen["metadata"]["due"]),
        (&json!(0), &json!(1), &json!(1))
    );
    let text = symphony(&reader, &["status"]).exits(0).stdout;
    for shown in ["all payments", "\norder ", "all events", "\ncustomer ", "all metadata"] {
        assert!(text.contains(shown), "{shown}: {text}");
    }
    database.close().await.unwrap();

    let database = server.empty_database().await.unwrap();
    symphony(&database.url(), &["install", "--lane", "event"]).exits(0);
    let seen = symphony(&database.url(), &["status", "--json"]).exits(0).json();
    assert_eq!(
        (seen.get("due_unleased_count"), &seen["events"]["due"], seen.get("metadata")),
        (None, &json!(0), None)
    );
    database.close().await.unwrap();
}

#[tokio::test]
async fn the_status_marks_counts_that_stopped_and_counts_all_with_exact() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let root = database.connect().await.unwrap();
    bulk_rows::rails(&root).await.unwrap();
    bulk_rows::due(&root, "plain", 10_500).await.unwrap();
    root.batch_execute(
        "insert into m10_recovery.outbox (aggregate_type, aggregate_id, event_type, payload)
         select 'order', 'order-' || i, 'OrderPlaced', '{}' from generate_series(1, 10500) i",
    )
    .await
    .unwrap();
    let reader = database.url_as_login(&["symphony_readonly"]).await.unwrap();
    let text = symphony(&reader, &["status"]).exits(0).stdout;
    let row = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].split_whitespace().take(4).map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(row(&text, "plain"), ["10000+", "0+", "0+", "0"], "{text}");
    assert_eq!(row(&text, "strict"), ["0", "0", "0", "0"], "{text}");
    assert_eq!(row(&text, "order"), ["10000+", "0", "0", "0"], "{text}");
    assert!(text.contains("payments are pending, by PostgreSQL's estimate"), "{text}");
    assert!(text.contains("symphony status --exact counts all"), "{text}");
    let json = symphony(&reader, &["status", "--json"]).exits(0).json();
    assert_eq!((&json["due_unleased_count"], &json["more_due"]), (&json!(10_000), &json!(true)));
    assert_eq!((&json["rails"][0]["more_due"], &json["rails"][1]["more_due"]), (&json!(true), &json!(false)));
    assert_eq!((&json["events"]["due"], &json["events"]["more_due"]), (&json!(10_000), &json!(true)));

    let text = symphony(&reader, &["status", "--exact"]).exits(0).stdout;
    assert_eq!(row(&text, "plain"), ["10500", "0", "0", "0"], "{text}");
    assert!(!text.contains("estimate"), "{text}");
    let json = symphony(&reader, &["status", "--exact", "--json"]).exits(0).json();
    assert_eq!(
        (&json["due_unleased_count"], &json["more_due"], &json["estimate"]),
        (&json!(10_500), &json!(false), &json!(10_500))
    );
    assert_eq!((&json["events"]["due"], &json["events"]["more_due"]), (&json!(10_500), &json!(false)));
    symphony(&reader, &["status", "--exact", "--watch"]).exits(2);
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_watch_shows_each_change_and_continues_after_a_database_outage() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let url = database.url();
    symphony(&url, &["rail", "add", "sepa", "--actor", "ana", "--reason", "go-live"]).exits(0);
    let enqueue = |name: &str| {
        let key =
            ["--instruction", name, "--participant", "acme", "--key", name, "--rail", "sepa", "--payload", "{}"];
        symphony(&url, &[&["enqueue"], &key[..]].concat()).exits(0);
    };
    let watching = Launch::new(env!("CARGO_BIN_EXE_symphony")).args(["status", "--watch", "1", "--json"]);
    let network = Proxy::in_front_of(&database.url_as_login(&["symphony_readonly"]).await.unwrap()).unwrap();
    let watching = watching.env("DATABASE_URL", network.url()).start().unwrap();
    let due = async |count: i64| {
        // A document is a line.
        let is_so =
            |line: &str| serde_json::from_str::<Value>(line).is_ok_and(|seen| seen["due_unleased_count"] == count);
        let line = watching.wait_for_line(is_so, DEFAULT_TIMEOUT).await.unwrap();
        let seen: Value = serde_json::from_str(&line).unwrap();
        assert!(seen["at"].is_string() && seen["rails"][0]["rail_type"] == "sepa", "{line}");
    };
    due(0).await;
    enqueue("pay-1");
    due(1).await;
    network.cut(NewConnections::Refuse).await;
    watching.wait_for_line(|line| line.starts_with("error: "), DEFAULT_TIMEOUT).await.unwrap();
    network.accept().await.unwrap();
    enqueue("pay-2");
    due(2).await;
    watching.term();
    assert_eq!(watching.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", watching.tail());
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_watch_ends_when_its_pipe_is_closed_and_does_not_start_without_a_database() {
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let read_once = watching(&database.url(), "--json | head -n 1");
    assert_eq!(read_once.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0, "{}", read_once.tail());
    let nowhere = watching("postgres://me@127.0.0.1:1/shop", "");
    assert_eq!(nowhere.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 4, "{}", nowhere.tail());
    database.close().await.unwrap();
}

#[tokio::test]
async fn a_terminal_is_drawn_over_and_a_file_is_not() {
    const OVER: &str = "\u{1b}[H\u{1b}[J";
    let server = Server::from_env().await.unwrap();
    let database = server.database().await.unwrap();
    let command = format!("{} status --watch 1", env!("CARGO_BIN_EXE_symphony"));
    let terminal = Launch::new("/usr/bin/script").args(["-qec", &command, "/dev/null"]);
    let terminal = terminal.env("DATABASE_URL", database.url()).start().unwrap();
    let mut drawings = 0;
    let twice = |line: &str| {
        drawings += usize::from(line.contains(OVER) && line.contains("Ctrl-C"));
        drawings == 2
    };
    terminal.wait_for_line(twice, DEFAULT_TIMEOUT).await.unwrap();
    drop(terminal);

    let file = watching(&database.url(), "");
    let total = file.wait_for_line(|line| line.starts_with("all payments"), DEFAULT_TIMEOUT).await.unwrap();
    assert!(!total.contains('\u{1b}') && !file.tail().contains('\u{1b}'), "{}", file.tail());
    drop(file);
    database.close().await.unwrap();
}
