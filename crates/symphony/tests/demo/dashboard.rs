//! The dashboard of a demo: its address is printed first, and it survives the kills.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use symphony_testkit::process::{Launch, Program};
use symphony_testkit::wait;

use crate::program::symphony;
use crate::{DEMO_TIMEOUT, SLOWLY, ask, folder, interrupt, nothing_is_left, number, paying, prepared};

/// Where a demo says that its dashboard is: in its first line.
async fn dashboard(demo: &Program) -> String {
    let first = demo.wait_for_line(|_| true, DEMO_TIMEOUT).await.unwrap();
    let address = first.strip_prefix("the dashboard is at http://").unwrap_or_else(|| panic!("{first}"));
    address.strip_suffix('/').unwrap().to_owned()
}

/// How many payments it finds in this state, on one page.
fn found(dashboard: &str, state: &str) -> usize {
    let answer = ask(dashboard, "GET", &format!("/api/v1/outboxes?state={state}"), "");
    let page: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1)
        .unwrap_or_else(|error| panic!("{error}: {answer}"));
    page["items"].as_array().unwrap().len()
}

/// A demo on a terminal, and its process id.
async fn on_a_terminal(folder: &std::path::Path, arguments: &[&str]) -> (Program, Pid) {
    let arguments: Vec<_> = SLOWLY.iter().chain(arguments).copied().collect();
    let command = format!("echo process $$; exec {} {}", env!("CARGO_BIN_EXE_symphony"), arguments.join(" "));
    let launch = Launch::new("/usr/bin/script").args([
        "--quiet",
        "--return",
        "--flush",
        "--command",
        &command,
        "/dev/null",
    ]);
    let demo = prepared(launch, folder).env("TERM", "dumb").start().unwrap();
    let line = demo.wait_for_line(|line| number(line, "process").is_some(), DEMO_TIMEOUT).await.unwrap();
    let process = number(&line, "process").and_then(|id| Pid::from_raw(id.try_into().unwrap())).unwrap();
    (demo, process)
}

#[tokio::test]
async fn it_is_there_from_the_first_line_until_a_demo_that_is_kept_is_told_to_end() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "6s", "--kill-every", "2s", "--keep", "--json"]).await;
    let dashboard = dashboard(&demo).await;
    demo.wait_for_line(|line| line.contains("kill -9 relayer-1.1"), DEMO_TIMEOUT).await.unwrap();
    assert!(ask(&dashboard, "GET", "/", "").starts_with("HTTP/1.0 200 "));
    // A rail that the user leaves paused does not keep the demo from ending.
    let audit_context = r#"{"actor": "ana", "reason": "a test"}"#;
    let paused = ask(&dashboard, "POST", "/api/v1/rails/payroll/pause", audit_context);
    assert!(paused.contains("\"paused\":true"), "{paused}");
    demo.wait_for_line(|line| line.contains("the rail payroll was paused; resumed"), DEMO_TIMEOUT).await.unwrap();
    let line = demo.wait_for_line(|line| line.contains("export DATABASE_URL="), DEMO_TIMEOUT).await.unwrap();
    let named = format!("\"dashboard\": \"http://{dashboard}/\"");
    demo.wait_for_line(|line| line.contains(&named), DEMO_TIMEOUT).await.unwrap();
    assert!(found(&dashboard, "DUE") == 0 && found(&dashboard, "DISPATCHED") > 0);

    let url = line.trim().strip_prefix("export DATABASE_URL=").unwrap().to_owned();
    symphony(&url, &["verify"]).exits(0);
    let status = symphony(&url, &["status", "--json"]).exits(0).json();
    assert_eq!((&status["due_unleased_count"], &status["leased_count"]), (&0.into(), &0.into()));
    // What is enqueued now is paid as well.
    let payment = r#"{"amount": "12.50", "currency": "EUR", "destination": {"iban": "DE02120300000000202051"}}"#;
    let order = ["enqueue", "--instruction", "late-1", "--participant", "merchant-1", "--rail", "sepa"];
    let enqueued =
        symphony(&url, &[order.as_slice(), &["--key", "late-1/payout/1", "--payload", payment]].concat());
    enqueued.exits(0);
    let paid = async || {
        let found = ask(&dashboard, "GET", "/api/v1/outboxes?instruction_id=late-1", "");
        found.contains("\"state\":\"DISPATCHED\"")
    };
    wait::until("a relayer has paid what came late", DEMO_TIMEOUT, paid).await.unwrap();
    interrupt(&demo);
    assert_eq!(demo.exit_code(DEMO_TIMEOUT).await.unwrap(), 0, "{}", demo.tail());
    symphony(&url, &["verify"]).exits(4);
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn on_a_terminal_it_stays_until_ctrl_c() {
    let folder = folder();
    let (demo, process) = on_a_terminal(folder.path(), &["--for", "1s"]).await;
    let stays = |line: &str| line.starts_with("Everything runs until Ctrl-C");
    let line = demo.wait_for_line(stays, DEMO_TIMEOUT).await.unwrap();
    let dashboard = line.split_once("http://").unwrap().1.trim_end().trim_end_matches('/').to_owned();
    assert!(found(&dashboard, "DUE") == 0 && found(&dashboard, "DISPATCHED") > 0);
    kill_process(process, Signal::INT).unwrap();
    assert_eq!(demo.exit_code(DEMO_TIMEOUT).await.unwrap(), 0, "{}", demo.tail());
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn on_a_terminal_a_demo_ends_by_itself_where_that_is_asked_for() {
    let folder = folder();
    let (demo, _) = on_a_terminal(folder.path(), &["--for", "1s", "--no-keep"]).await;
    assert_eq!(demo.exit_code(DEMO_TIMEOUT).await.unwrap(), 0, "{}", demo.tail());
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn ctrl_c_ends_it_early_with_an_audit_on_a_terminal_too() {
    let folder = folder();
    let (demo, process) = on_a_terminal(folder.path(), &["--for", "1h", "--kill-every", "0s"]).await;
    demo.wait_for_line(|line| number(line, "dispatched").is_some_and(|paid| paid > 0), DEMO_TIMEOUT)
        .await
        .unwrap();
    kill_process(process, Signal::INT).unwrap();
    assert_eq!(demo.exit_code(DEMO_TIMEOUT).await.unwrap(), 0, "{}", demo.tail());
    for words in [
        "payments: 0 lost, 0 executed twice",
        "events: 0 missing, 0 out of order",
        "metadata: 0 missing, 0 out of date",
        "DISPATCHED by relayer-",
    ] {
        demo.wait_for_line(|line| line.contains(words), DEMO_TIMEOUT).await.unwrap();
    }
    nothing_is_left(folder.path());
}
