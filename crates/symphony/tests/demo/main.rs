//! `symphony demo`: load, kills, audits, and nothing left behind.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod dashboard;
#[path = "../program/mod.rs"]
mod program;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use symphony_db::connect::Target;
use symphony_testkit::process::{Launch, Program};
use symphony_testkit::wait;
use tempfile::TempDir;

/// A demo drains for six minutes at most; this is for everything around it on a busy machine.
const DEMO_TIMEOUT: Duration = Duration::from_secs(480);

/// A folder for all that a demo makes, which a server of another user may enter. Its path is short, for sockets.
fn folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("symphony-demo-").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A demo that takes few orders.
const SLOWLY: [&str; 5] = ["demo", "--payments-per-second", "20", "--participants", "10"];

/// With its folder, and with settings that must not reach whatever it starts.
fn prepared(launch: Launch, folder: &Path) -> Launch {
    let nothing = "postgres://unused@127.0.0.1:1/nothing";
    let theirs = ["DATABASE_URL", "SYMPHONY_CONSOLE_READ_URL", "SYMPHONY_CONSOLE_ACT_URL"];
    theirs.into_iter().fold(launch.env("TMPDIR", folder), |launch, name| launch.env(name, nothing))
}

/// A demo that has begun to pay, slowly.
async fn paying(folder: &Path, arguments: &[&str]) -> Program {
    let launch = Launch::new(env!("CARGO_BIN_EXE_symphony")).args(SLOWLY).args(arguments);
    let demo = prepared(launch, folder).start().unwrap();
    demo.wait_for_line(|line| number(line, "dispatched").is_some_and(|paid| paid > 0), DEMO_TIMEOUT)
        .await
        .unwrap();
    // A folder for PostgreSQL, one for each broker and one for the Redis of metadata, and who works in them.
    assert!(of(folder).len() >= 4 && std::fs::read_dir(folder).unwrap().count() == 4, "it is somewhere else");
    demo
}

/// The number after a word of a progress line.
fn number(line: &str, word: &str) -> Option<u64> {
    let (_, rest) = line.split_once(&format!("{word} "))?;
    rest.split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Asks it to end, as Ctrl-C does.
fn interrupt(demo: &Program) {
    kill_process(Pid::from_raw(demo.id()).unwrap(), Signal::INT).unwrap();
}

/// The command lines that name this folder, or work in it: the servers, the bank and the relayers of its demo.
fn of(folder: &Path) -> Vec<String> {
    let name = folder.to_str().unwrap();
    let commands = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        let command = std::fs::read_to_string(entry.path().join("cmdline")).ok()?;
        // Redis writes over its command line.
        let works_in = std::fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        (command.contains(name) || works_in.starts_with(folder)).then(|| command.replace('\0', " "))
    });
    commands.collect()
}

#[track_caller]
fn nothing_is_left(folder: &Path) {
    assert_eq!(of(folder), [""; 0]);
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

/// A short demo to its end, with these variables: its audit, which holds, and its standard error.
fn audited(folder: &Path, variables: &[(&str, &str)]) -> (Value, String) {
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["demo", "--for", "6s", "--kill-every", "2s", "--payments-per-second", "50", "--json"])
        .env("TMPDIR", folder)
        .envs(variables.iter().copied())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let stderr = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}\n{stderr}", String::from_utf8_lossy(&ran.stdout));
    (serde_json::from_slice(&ran.stdout).unwrap(), stderr)
}

/// The part about events: all of them were found, at two places of these names, one of which was killed.
#[track_caller]
fn events_have_arrived(audit: &Value, places: [&str; 2]) {
    let events = &audit["events"];
    let none = [&events["missing"], &events["out_of_order"]];
    assert_eq!(none, [0, 0], "{events}");
    assert_eq!((&events["committed"], &events["broker_kills"]), (&audit["business"]["committed"], &1.into()));
    let found: Vec<_> = events["places"].as_array().unwrap().iter().collect();
    assert_eq!(found.len(), 2, "{events}");
    for (at, name) in found.iter().zip(places) {
        assert!(at["place"].as_str().unwrap().starts_with(name), "{events}");
        assert!(at["arrived"].as_u64().unwrap() > 0 && at["arrived"] == at["committed"], "{events}");
        assert!(at["aggregates"].as_u64().unwrap() > 0 && at["findings"] == Value::Array(Vec::new()), "{events}");
    }
}

/// The part about metadata: every entry was published, and each entity is in its store, of its latest version.
#[track_caller]
fn metadata_is_kept(audit: &Value, stores: &[&str]) {
    let metadata = &audit["metadata"];
    assert_eq!([&metadata["missing"], &metadata["outdated"]], [0, 0], "{metadata}");
    assert_eq!((&metadata["committed"], &metadata["findings"]), (&audit["business"]["committed"], &json!([])));
    let found: Vec<_> = metadata["stores"].as_array().unwrap().iter().collect();
    assert_eq!(found.len(), stores.len(), "{metadata}");
    for (at, name) in found.iter().zip(stores) {
        assert!(at["store"].as_str().unwrap().starts_with(name), "{metadata}");
        assert!(at["entities"].as_u64().unwrap() > 0 && at["records"] == at["entities"], "{metadata}");
        assert!(at["published"] == at["entries"] && at["findings"] == json!([]), "{metadata}");
    }
}

#[tokio::test]
async fn relayers_and_a_broker_are_killed_and_the_audit_holds() {
    let folder = folder();
    let (audit, stderr) = audited(folder.path(), &[]);
    assert_eq!((&audit["holds"], &audit["lost"], &audit["executed_twice"]), (&true.into(), &0.into(), &0.into()));
    let count = |pointer: &str| audit.pointer(pointer).and_then(Value::as_u64).unwrap();
    assert!(count("/kills") >= 1, "{audit}");
    assert!(count("/report/counts/dispatched") > 0 && count("/report/counts/in_order") > 0, "{audit}");
    assert_eq!(count("/report/counts/pending"), 0);
    assert_eq!(count("/report/counts/committed"), count("/report/counts/outboxes"));
    assert_eq!(count("/report/counts/committed"), count("/business/committed"));
    let ended =
        count("/report/counts/dispatched") + count("/report/counts/failed") + count("/report/counts/unknown");
    assert_eq!(ended, count("/report/counts/outboxes"));
    events_have_arrived(&audit, ["NATS on port ", "Redis on port "]);
    metadata_is_kept(&audit, &["the database copies", "Redis on port "]);
    // Without a terminal there are plain lines, and nothing that would steer one.
    let received = |words: &str| stderr.lines().any(|line| line.contains(words));
    assert!(received("load: enqueued ") && received("kill -9 relayer-1.1") && received("; events "), "{stderr}");
    assert!(received("; metadata ") && received(" metadata claims expired"), "{stderr}");
    let again = |line: &str| line.starts_with("NATS on port ") && line.ends_with(" restarted");
    assert!(received("kill -9 NATS on port ") && stderr.lines().any(again), "{stderr}");
    assert!(!stderr.contains('\u{1b}'), "{stderr}");
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn without_brokers_events_go_to_receivers_over_http_and_metadata_to_the_database() {
    let folder = folder();
    let nowhere = folder.path().join("nowhere");
    let nowhere = nowhere.to_str().unwrap();
    let (audit, stderr) =
        audited(folder.path(), &[("SYMPHONY_NATS_SERVER", nowhere), ("SYMPHONY_REDIS_SERVER", nowhere)]);
    events_have_arrived(&audit, ["an HTTP receiver on port "; 2]);
    metadata_is_kept(&audit, &["the database copies"]);
    assert!(stderr.lines().any(|line| line.starts_with("Redis for metadata is not installed: ")), "{stderr}");
    for broker in ["NATS", "Redis"] {
        assert!(stderr.lines().any(|line| line.starts_with(&format!("{broker} is not installed: "))), "{stderr}");
    }
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn a_second_ctrl_c_leaves_at_once_and_removes_everything() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "1h", "--faults", "many"]).await;
    interrupt(&demo);
    demo.wait_for_line(|line| line.contains("stopping early"), DEMO_TIMEOUT).await.unwrap();
    interrupt(&demo);
    // Where everything had ended in between, the audit was faster.
    let code = demo.exit_code(DEMO_TIMEOUT).await.unwrap();
    assert!(matches!(code, 130 | 0), "{code}: {}", demo.tail());
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn a_demo_that_is_killed_takes_its_processes_with_it() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "1h"]).await;
    demo.kill9().await.unwrap();
    let gone = async || of(folder.path()).is_empty();
    wait::until("everything that it had started is gone", DEMO_TIMEOUT, gone).await.unwrap();
}

#[tokio::test]
async fn a_bank_that_forgets_its_keys_is_found_out() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "1h", "--kill-every", "0s", "--faults", "none"]).await;
    let begins = demo.wait_for_line(|line| line.contains("the bank on "), DEMO_TIMEOUT).await.unwrap();
    let bank = begins.split_once("the bank on ").unwrap().1.split(',').next().unwrap().to_owned();
    // The bank answers an inquiry about a forgotten key as never seen, although it executed the payment.
    let answer = ask(&bank, "PUT", "/v1/faults", r#"{"cut_after": "0.5", "forget_after": "0keys"}"#);
    assert!(answer.contains(" 200 "), "{answer}");
    let twice = async || !ask(&bank, "GET", "/v1/stats", "").contains("\"executed_again\":0,");
    wait::until("the bank has executed a key twice", DEMO_TIMEOUT, twice).await.unwrap();
    interrupt(&demo);
    assert_eq!(demo.exit_code(DEMO_TIMEOUT).await.unwrap(), 1, "{}", demo.tail());
    demo.wait_for_line(|line| line.contains("VIOLATION the bank executed key"), DEMO_TIMEOUT).await.unwrap();
    demo.wait_for_line(|line| line.contains("AUDIT FAILED"), DEMO_TIMEOUT).await.unwrap();
    nothing_is_left(folder.path());
}

/// From now on the second database says that it has stored what it has not: of one entity it keeps nothing, of the others what it has.
const LIES: &str = "
    create table lies (lie text);
    create function forget() returns trigger language plpgsql security definer as $$
    begin
      delete from symphony_metadata m where (m.entity_type, m.entity_id) = (new.entity_type, new.entity_id);
      insert into lies values ('forgotten');
      return null;
    end $$;
    create function set_back() returns trigger language plpgsql security definer as $$
    begin
      insert into lies values ('set back');
      return old;
    end $$;
    create trigger forgets after insert on symphony_metadata
      for each row when (new.entity_id = 'merchant-1') execute function forget();
    create trigger sets_back before update on symphony_metadata
      for each row when (new.entity_id <> 'merchant-1') execute function set_back();
    delete from symphony_metadata where entity_id = 'merchant-1';";

#[tokio::test]
async fn brokers_and_stores_that_lose_what_they_have_confirmed_are_found_out() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "1h", "--kill-every", "0s", "--faults", "none"]).await;
    let port = async |beginning: &str, before: &str| {
        let line = demo.wait_for_line(|line| line.starts_with(beginning), DEMO_TIMEOUT).await.unwrap();
        line.split_once(before).unwrap().1.split(',').next().unwrap().to_owned()
    };
    let [database, events, metadata] = [
        port("PostgreSQL ", " on port ").await,
        port("events go to ", "Redis on port ").await,
        port("metadata goes to ", "Redis on port ").await,
    ];
    let password = std::fs::read_dir(folder.path()).unwrap().flatten();
    let password = password.map(|entry| entry.path().join("broker-password")).find(|file| file.exists()).unwrap();
    let password = std::fs::read_to_string(password).unwrap();
    let copies = format!("postgres://postgres@127.0.0.1:{database}/copies");
    let copies = Target::parse(&copies).unwrap().connect().await.unwrap();
    copies.batch_execute(LIES).await.unwrap();
    // Trimming the stream removes an event once there is one.
    let loses = async || {
        let answers = tell_redis(&events, &password, "XTRIM payroll MAXLEN 0");
        assert!(answers.starts_with("+OK\r\n:"), "{answers}");
        !answers.contains(":0\r\n")
    };
    wait::until("Redis had an event to lose", DEMO_TIMEOUT, loses).await.unwrap();
    // A renamed key belongs to no entity.
    let renames = async || {
        let rename = "RENAME symphony:metadata:payroll:merchant-2 symphony:metadata:payroll:renamed";
        tell_redis(&metadata, &password, rename).starts_with("+OK\r\n+OK\r\n")
    };
    wait::until("Redis had a record to rename", DEMO_TIMEOUT, renames).await.unwrap();
    let lied = async || {
        let lies = copies.query_one("select count(distinct lie) from lies", &[]).await.unwrap();
        lies.get::<_, i64>(0) == 2
    };
    wait::until("both lies of the database were injected", DEMO_TIMEOUT, lied).await.unwrap();
    drop(copies);
    interrupt(&demo);
    assert_eq!(demo.exit_code(DEMO_TIMEOUT).await.unwrap(), 1, "{}", demo.tail());
    let found = [
        ["VIOLATION Redis on port ", "was committed and did not arrive"],
        ["VIOLATION Redis on port ", "\"payroll/renamed\" has version "],
        ["VIOLATION the database copies: ", "\"merchant/merchant-1\" was published and the store has no record"],
        ["VIOLATION the database copies: \"merchant/merchant-", ", and version "],
        ["events: ", "AUDIT FAILED"],
        ["metadata: ", "AUDIT FAILED"],
        ["payments: 0 lost, 0 executed twice; ", "no violations"],
    ];
    for [begins, says] in found {
        let line = |line: &str| line.trim_start().starts_with(begins) && line.contains(says);
        demo.wait_for_line(line, DEMO_TIMEOUT).await.unwrap();
    }
    nothing_is_left(folder.path());
}

/// What a Redis of the demo answers to its user's name, and to a command.
fn tell_redis(port: &str, password: &str, command: &str) -> String {
    let mut redis = TcpStream::connect(format!("127.0.0.1:{port}")).unwrap();
    redis.set_read_timeout(Some(DEMO_TIMEOUT)).unwrap();
    write!(redis, "AUTH symphony {password}\r\n{command}\r\nQUIT\r\n").unwrap();
    let mut answers = String::new();
    redis.read_to_string(&mut answers).unwrap();
    answers
}

fn ask(host: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(host).unwrap();
    stream.set_read_timeout(Some(DEMO_TIMEOUT)).unwrap();
    let length = body.len();
    let head = format!("{method} {path} HTTP/1.0\r\nHost: {host}\r\nContent-Type: application/json\r\n");
    write!(stream, "{head}Content-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
