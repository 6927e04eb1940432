//! Finds installed programs that tests run: Chromium, schemathesis, DuckDB, the checks of bank formats, Node.js and
//! Python.

use std::env;
use std::fmt;
use std::path::PathBuf;

use super::cache;

const USUAL_FOLDERS: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];

/// A program that tests run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Chromium, or a browser based on it.
    Chromium,
    /// Schemathesis, which tests an API against its OpenAPI description.
    Schemathesis,
    /// The program of `scripts/setup` that runs a script with schemas of ISO 20022 and verifiers of signatures.
    BankFormats,
    /// DuckDB, as the program of `scripts/setup`, which runs one statement.
    DuckDb,
    /// Node.js that runs TypeScript.
    Node,
    /// Python 3.
    Python,
}

/// The program was not found.
#[derive(thiserror::Error)]
#[error("found no {program}: {advice}, or set {setting} to the program")]
pub struct ToolNotFound {
    program: &'static str,
    advice: &'static str,
    setting: &'static str,
}

/// `unwrap` prints this, so it must say what to do next.
impl fmt::Debug for ToolNotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The program that its environment variable names, or else the first in the cache of `scripts/setup`, the usual
/// folders and the PATH.
///
/// # Errors
/// When none of them has it.
pub fn find(tool: Tool) -> Result<PathBuf, ToolNotFound> {
    let (names, advice, setting): (&[&'static str], _, _) = match tool {
        Tool::Chromium => {
            let names = &["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
            (names, "run `scripts/setup --browser`", "SYMPHONY_CHROMIUM")
        }
        Tool::Schemathesis => (&["schemathesis"], "run `scripts/setup --schemathesis`", "SYMPHONY_SCHEMATHESIS"),
        Tool::BankFormats => (&["bank-formats"], "run `scripts/setup --bank-formats`", "SYMPHONY_BANK_FORMATS"),
        Tool::DuckDb => (&["duckdb"], "run `scripts/setup --duckdb`", "SYMPHONY_DUCKDB"),
        Tool::Node => (&["node"], "run `scripts/setup --node`", "SYMPHONY_NODE"),
        Tool::Python => (&["python3"], "install it (on Debian: apt-get install python3)", "SYMPHONY_PYTHON"),
    };
    if let Some(named) = env::var_os(setting).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let program = names.first().copied().unwrap_or_default();
    let mut folders: Vec<PathBuf> = cache::folders().map(|cache| cache.join(program).join("bin")).collect();
    folders.extend(USUAL_FOLDERS.map(PathBuf::from));
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    files.find(|file| file.is_file()).ok_or(ToolNotFound { program, advice, setting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_nothing_says_what_to_do_next() {
        let error = ToolNotFound {
            program: "chromium",
            advice: "run `scripts/setup --browser`",
            setting: "SYMPHONY_CHROMIUM",
        };
        let output = format!("{error:?}");
        assert!(output.contains("scripts/setup --browser") && output.contains("SYMPHONY_CHROMIUM"), "{output}");
    }
}
