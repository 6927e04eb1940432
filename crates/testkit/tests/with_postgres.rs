//! The program `with-postgres`: the environment of its command, its exit codes, and its cleanup.
#![expect(
    clippy::unwrap_used,
    reason = "clippy.toml allows it in tests, and does not see that helpers here are of them"
)]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tokio_postgres::NoTls;

#[test]
fn the_command_gets_the_address_and_its_exit_code_is_passed_on() {
    let output = with_postgres(&["sh", "-c", "echo $SYMPHONY_TEST_SERVER; exit 3"]);
    let url = String::from_utf8(output.stdout).unwrap();
    assert!(url.starts_with("postgres://postgres@127.0.0.1:"), "{url}");
    assert!(url.trim().ends_with("/postgres"), "{url}");
    assert_eq!(output.status.code(), Some(3));
}

#[test]
fn a_command_that_is_ended_by_a_signal_is_reported_as_shells_do() {
    let output = with_postgres(&["sh", "-c", "kill -9 $$"]);
    assert_eq!(output.status.code(), Some(128 + 9));
}

#[test]
fn failures_before_the_command_have_separate_exit_codes() {
    assert_eq!(with_postgres(&["no-such-command"]).status.code(), Some(127));
    assert_eq!(with_postgres(&["/"]).status.code(), Some(126));

    let output = program().args(["--bindir", "/nowhere", "--", "true"]).output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.contains("scripts/setup"), "an error must say what to do next: {stderr}");
}

#[tokio::test]
async fn sigterm_reaches_the_command_and_then_the_server_is_removed() {
    let mut running = Running::start();
    let folder = running.server_folder().await;

    kill_process(Pid::from_child(&running.child), Signal::TERM).unwrap();

    let status = running.child.wait().unwrap();
    assert_eq!(status.code(), Some(128 + 15));
    assert!(!folder.exists());
}

/// Needs `/proc`, to tell an orphan from a process that has reused its pid.
#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_server_whose_owner_was_killed_is_removed_by_the_next_start() {
    let mut running = Running::start();
    let folder = running.server_folder().await;
    running.child.kill().unwrap();
    running.child.wait().unwrap();

    // The kernel signals the orphan to stop, which takes a moment; if it does not, the next start does. A start leaves
    // the folder alone only while another start removes it.
    let deadline = Instant::now() + Duration::from_secs(30);
    while folder.exists() {
        assert!(Instant::now() < deadline, "{} is still there", folder.display());
        assert!(with_postgres(&["true"]).status.success());
    }
    assert!(tokio_postgres::connect(&running.url, NoTls).await.is_err());
}

fn program() -> Command {
    Command::new(env!("CARGO_BIN_EXE_with-postgres"))
}

fn with_postgres(command: &[&str]) -> Output {
    program().arg("--").args(command).output().unwrap()
}

/// The program with a command that runs until it is ended or the test ends.
struct Running {
    child: Child,
    /// Separate from the child, because waiting for a child closes its stdin, which ends the command.
    _input: ChildStdin,
    url: String,
}

impl Running {
    fn start() -> Self {
        let mut child = program()
            .args(["--", "sh", "-c", "echo $SYMPHONY_TEST_SERVER; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut url = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut url).unwrap();
        let input = child.stdin.take().unwrap();
        Self { child, _input: input, url: url.trim().to_owned() }
    }

    async fn server_folder(&self) -> PathBuf {
        let (client, connection) = tokio_postgres::connect(&self.url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let row = client.query_one("show data_directory", &[]).await.unwrap();
        PathBuf::from(row.get::<_, String>(0)).parent().unwrap().to_path_buf()
    }
}
