//! Shell scripts that are started, suspended, stopped and killed.

use std::os::unix::process::ExitStatusExt;

use super::*;
use crate::wait;

const DEFAULT_TIMEOUT: Duration = wait::DEFAULT_TIMEOUT;

#[tokio::test]
async fn a_line_is_found_whether_it_was_written_before_or_after_the_wait_began() {
    let program = shell("echo first; echo second >&2; read never; echo third; exec tail -f /dev/null");
    let second = program.wait_for_line(|line| line.starts_with("sec"), DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(second, "second");
    // Its stdin is empty, so `read` did not block.
    program.wait_for_line(|line| line == "third", DEFAULT_TIMEOUT).await.unwrap();
    program.wait_for_line(|line| line == "first", DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(program.line_count(), 3);
}

#[tokio::test]
async fn only_lines_after_a_position_count_when_one_is_given() {
    let program = shell("echo same; trap 'echo same' TERM; while :; do read never < /dev/null; sleep 0.01; done");
    program.wait_for_line(|line| line == "same", DEFAULT_TIMEOUT).await.unwrap();
    let position = program.line_count();
    let short = Duration::from_millis(50);
    program.wait_for_line_from(position, |line| line == "same", short).await.unwrap_err();
    program.term();
    program.wait_for_line_from(position, |line| line == "same", DEFAULT_TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn a_program_gets_its_arguments_and_variables_and_returns_its_exit_code() {
    let launch = Launch::new("/bin/sh").args(["-c", "echo $0 $SHOWN ${HOME-gone}; exit 7", "argument"]);
    let program = launch.env("SHOWN", "variable").env_remove("HOME").start().unwrap();
    assert_eq!(program.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 7);
    assert_eq!(program.tail(), "argument variable gone");
}

#[tokio::test]
async fn a_program_that_ends_without_the_line_fails_the_wait_and_shows_its_output() {
    let program = shell("echo oh dear >&2; exit 3");
    let refusal = program.wait_for_line(|line| line == "ready", DEFAULT_TIMEOUT).await.unwrap_err();
    assert!(matches!(&refusal, Error::Ended { status, .. } if status.code() == Some(3)), "{refusal}");
    assert!(format!("{refusal:?}").ends_with("output:\noh dear"), "{refusal:?}");
}

#[tokio::test]
async fn a_program_that_does_not_end_fails_the_wait_and_shows_its_output() {
    let program = shell("echo busy; exec tail -f /dev/null");
    program.wait_for_line(|line| line == "busy", DEFAULT_TIMEOUT).await.unwrap();
    let refusal = program.exit_code(Duration::from_millis(30)).await.unwrap_err();
    assert!(matches!(&refusal, Error::TimedOut { output, .. } if output == "busy"), "{refusal}");
}

#[tokio::test]
async fn a_program_that_is_ended_by_a_signal_has_no_exit_code() {
    let program = shell("exec tail -f /dev/null");
    program.term();
    let status = program.exit(DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(status.signal(), Some(15));
    assert!(program.exit_code(DEFAULT_TIMEOUT).await.is_err());
}

#[tokio::test]
async fn a_suspended_program_does_nothing_until_it_is_resumed() {
    let program = shell("trap 'echo signalled' TERM; echo ready; while :; do sleep 0.01; done");
    program.wait_for_line(|line| line == "ready", DEFAULT_TIMEOUT).await.unwrap();
    program.suspend();
    program.term();
    let short = Duration::from_millis(100);
    program.wait_for_line(|line| line == "signalled", short).await.unwrap_err();
    assert!(program.is_running());
    program.resume();
    program.wait_for_line(|line| line == "signalled", DEFAULT_TIMEOUT).await.unwrap();
}

#[tokio::test]
async fn a_kill_ends_a_suspended_program_and_its_children() {
    let program = shell("tail -f /dev/null & echo $!; wait");
    let child = program.wait_for_line(|_| true, DEFAULT_TIMEOUT).await.unwrap();
    program.suspend();
    program.kill9().await.unwrap();
    assert!(!program.is_running());
    gone(child).await;
}

#[tokio::test]
async fn dropping_a_program_in_a_panic_ends_it_and_its_children() {
    let program = shell("tail -f /dev/null & echo $!; wait");
    let child = program.wait_for_line(|_| true, DEFAULT_TIMEOUT).await.unwrap();
    let id = program.id();
    let panicked = tokio::spawn(async move {
        let _held = program;
        panic!("as a test would");
    });
    assert!(panicked.await.unwrap_err().is_panic());
    gone(id.to_string()).await;
    gone(child).await;
}

#[tokio::test]
async fn the_children_of_a_program_end_when_it_does() {
    let program = shell("tail -f /dev/null & echo $!; exit 0");
    assert_eq!(program.exit_code(DEFAULT_TIMEOUT).await.unwrap(), 0);
    gone(program.tail()).await;
}

#[tokio::test]
async fn the_kept_output_is_limited_in_lines_and_in_line_length() {
    let program = shell("head -c 1000000 /dev/zero; echo; yes | head -n 30000; echo last");
    program.wait_for_line(|line| line == "last", DEFAULT_TIMEOUT).await.unwrap();
    assert_eq!(program.line_count(), 30_002);
    assert!(program.wait_for_line(|line| line.len() > 70_000, DEFAULT_TIMEOUT).await.is_err());
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_an_error_at_once() {
    let refusal = Program::start("/nowhere/at-all", [""; 0]).unwrap_err();
    assert!(matches!(refusal, Error::Start { .. }), "{refusal}");
}

fn shell(script: &str) -> Program {
    Program::start("/bin/sh", ["-c", script]).unwrap()
}

/// Waits until a process has ended or is a zombie.
async fn gone(id: String) {
    wait::until(format!("process {id} has ended"), DEFAULT_TIMEOUT, async || {
        let state = std::process::Command::new("ps").args(["-o", "stat=", "-p", &id]).output().unwrap().stdout;
        state.is_empty() || state.starts_with(b"Z")
    })
    .await
    .unwrap();
}
