//! The built program, run on a database, and its output.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// What a run left behind.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: i32,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    /// Its whole output, for messages of failed tests.
    pub(crate) fn all(&self) -> String {
        format!("exit code {}\nstdout: {}\nstderr: {}", self.code, self.stdout, self.stderr)
    }

    /// The result as JSON.
    #[allow(dead_code, reason = "not every test reads JSON")]
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap_or_else(|error| panic!("{error}: {}", self.all()))
    }

    /// Fails the test unless it ended with this code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{}", self.all());
        self
    }
}

/// Runs the program with these arguments on the database at this URL.
pub(crate) fn symphony(url: &str, arguments: &[&str]) -> Ran {
    symphony_with_input(url, arguments, "")
}

/// The same with something on its stdin.
pub(crate) fn symphony_with_input(url: &str, arguments: &[&str], input: &str) -> Ran {
    let mut child = Command::new(env!("CARGO_BIN_EXE_symphony"))
        .args(arguments)
        .env("DATABASE_URL", url)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_owned();
    // In a thread: a program that does not read would leave us waiting.
    let writer = std::thread::spawn(move || {
        let _ = stdin.write_all(input.as_bytes());
    });
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Ran {
        code: output.status.code().unwrap_or(-1),
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
    }
}
