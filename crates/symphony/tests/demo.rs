//! `symphony demo`: it pays, is killed here and there, audits, and leaves nothing behind.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

mod program;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use program::symphony;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use symphony_proof::kit::process::{Launch, Program};
use symphony_proof::kit::wait;
use tempfile::TempDir;

/// A demo drains for three minutes at most; this is for everything around it on a busy machine.
const BOUND: Duration = Duration::from_secs(300);

/// A folder for all that a demo makes, which a server of another user may enter. Its path is short, for sockets.
fn folder() -> TempDir {
    let folder = tempfile::Builder::new().prefix("symphony-demo-").tempdir_in("/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

/// A demo that has begun to pay, slowly.
async fn paying(folder: &Path, arguments: &[&str]) -> Program {
    let demo = Launch::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["demo", "--payments-per-second", "20", "--participants", "10"])
        .args(arguments)
        .env("TMPDIR", folder)
        // What the caller has set is about another database, and is not touched.
        .env("DATABASE_URL", "postgres://nobody@127.0.0.1:1/nothing")
        .start()
        .unwrap();
    demo.wait_for_line(|line| number(line, "dispatched").is_some_and(|paid| paid > 0), BOUND).await.unwrap();
    assert!(!of(folder).is_empty() && std::fs::read_dir(folder).unwrap().count() == 1, "it is somewhere else");
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

/// The command lines that name this folder: the server, the bank and the relayers of its demo.
fn of(folder: &Path) -> Vec<String> {
    let name = folder.to_str().unwrap();
    let commands = std::fs::read_dir("/proc").unwrap().flatten().filter_map(|entry| {
        entry.file_name().to_str()?.parse::<u32>().ok()?;
        std::fs::read_to_string(entry.path().join("cmdline")).ok()
    });
    commands.map(|command| command.replace('\0', " ")).filter(|command| command.contains(name)).collect()
}

#[track_caller]
fn nothing_is_left(folder: &Path) {
    assert_eq!(of(folder), [""; 0]);
    let left: Vec<_> = std::fs::read_dir(folder).unwrap().flatten().map(|entry| entry.path()).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[tokio::test]
async fn relayers_are_killed_and_the_audit_holds() {
    let folder = folder();
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(["demo", "--for", "6s", "--kill-every", "2s", "--payments-per-second", "50", "--json"])
        .env("TMPDIR", folder.path())
        .stdin(std::process::Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    assert_eq!(ran.status.code(), Some(0), "{}\n{said}", String::from_utf8_lossy(&ran.stdout));
    let audit: Value = serde_json::from_slice(&ran.stdout).unwrap();
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
    // Without a terminal there are plain lines, and nothing that would steer one.
    assert!(said.contains("paying: enqueued ") && said.contains("kill -9 relayer-1.1"), "{said}");
    assert!(!said.contains('\u{1b}'), "{said}");
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn ctrl_c_ends_it_early_with_an_audit() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "1h", "--kill-every", "0s"]).await;
    interrupt(&demo);
    assert_eq!(demo.exit_code(BOUND).await.unwrap(), 0, "{}", demo.tail());
    demo.wait_for_line(|line| line.contains("0 lost, 0 executed twice"), BOUND).await.unwrap();
    demo.wait_for_line(|line| line.contains("DISPATCHED by relayer-"), BOUND).await.unwrap();
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn a_second_ctrl_c_leaves_at_once_and_removes_everything() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "1h", "--faults", "many"]).await;
    interrupt(&demo);
    demo.wait_for_line(|line| line.contains("stopping early"), BOUND).await.unwrap();
    interrupt(&demo);
    // Where everything had ended in between, the audit was faster.
    let code = demo.exit_code(BOUND).await.unwrap();
    assert!(matches!(code, 130 | 0), "{code}: {}", demo.tail());
    nothing_is_left(folder.path());
}

#[tokio::test]
async fn a_demo_that_is_killed_takes_its_processes_with_it() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "1h"]).await;
    demo.kill9().await.unwrap();
    let gone = async || of(folder.path()).is_empty();
    wait::until("everything that it had started is gone", BOUND, gone).await.unwrap();
}

#[tokio::test]
async fn a_bank_that_forgets_its_keys_is_found_out() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "1h", "--kill-every", "0s", "--faults", "none"]).await;
    let begins = demo.wait_for_line(|line| line.contains("the bank on "), BOUND).await.unwrap();
    let bank = begins.split_once("the bank on ").unwrap().1.split(',').next().unwrap().to_owned();
    // Whoever is asked about a key that it has executed and forgotten says that it has never seen it.
    let answer = ask(&bank, "PUT", "/v1/faults", r#"{"cut_after": "0.5", "forget_after": "0keys"}"#);
    assert!(answer.contains(" 200 "), "{answer}");
    let twice = async || !ask(&bank, "GET", "/v1/stats", "").contains("\"executed_again\":0,");
    wait::until("the bank has executed a key twice", BOUND, twice).await.unwrap();
    interrupt(&demo);
    assert_eq!(demo.exit_code(BOUND).await.unwrap(), 1, "{}", demo.tail());
    demo.wait_for_line(|line| line.contains("FOUND the bank has executed key"), BOUND).await.unwrap();
    demo.wait_for_line(|line| line.contains("THE AUDIT DOES NOT HOLD"), BOUND).await.unwrap();
    nothing_is_left(folder.path());
}

fn ask(bank: &str, method: &str, path: &str, body: &str) -> String {
    let mut stream = TcpStream::connect(bank).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    let length = body.len();
    write!(stream, "{method} {path} HTTP/1.0\r\nHost: bank\r\nContent-Length: {length}\r\n\r\n{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[tokio::test]
async fn a_demo_that_is_kept_can_be_looked_at_until_ctrl_c() {
    let folder = folder();
    let demo = paying(folder.path(), &["--for", "1s", "--keep"]).await;
    let line = demo.wait_for_line(|line| line.contains("export DATABASE_URL="), BOUND).await.unwrap();
    let url = line.trim().strip_prefix("export DATABASE_URL=").unwrap().to_owned();
    symphony(&url, &["verify"]).exits(0);
    let status = symphony(&url, &["status", "--json"]).exits(0).json();
    assert_eq!((&status["due"], &status["leased"]), (&0.into(), &0.into()));
    interrupt(&demo);
    assert_eq!(demo.exit_code(BOUND).await.unwrap(), 0, "{}", demo.tail());
    symphony(&url, &["verify"]).exits(3);
    nothing_is_left(folder.path());
}
