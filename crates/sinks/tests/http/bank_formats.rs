//! Runs the parsers and verifiers of `bank_formats.py`, which are not ours.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use symphony_testkit::tool::{self, Tool};

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/http/bank_formats.py");

/// Runs a command of the script with this input. The error is what it printed.
pub(crate) fn check(arguments: &[&str], input: &[u8]) -> Result<Value, String> {
    let mut child = Command::new(tool::find(Tool::BankFormats).unwrap())
        .arg(SCRIPT)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    let output = child.wait_with_output().unwrap();
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    Ok(serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
}

/// A folder with a private key (`NAME.pem`) and a public key (`NAME.pub`) of each kind.
pub(crate) fn keys() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    check(&["keys", path(folder.path())], b"").unwrap();
    folder
}

pub(crate) fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}
