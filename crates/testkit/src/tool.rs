//! Finds installed programs that tests run: Chromium and schemathesis.

use std::env;
use std::fmt;
use std::path::PathBuf;

use super::cache;

const USUAL: [&str; 3] = ["/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tool {
    /// Chromium, or a browser based on it.
    Chromium,
    /// Tests an API against its OpenAPI description.
    Schemathesis,
}

/// There is no such program. Get it.
#[derive(thiserror::Error)]
#[error("found no {program}: run `scripts/setup {option}`, or set {setting} to the program")]
pub struct Nowhere {
    program: &'static str,
    option: &'static str,
    setting: &'static str,
}

/// Tests unwrap, and what they print is this: it has to say what to do next.
impl fmt::Debug for Nowhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The program that its variable names, or else the first that is found: in the cache of `scripts/setup`, in the usual
/// folders, on the PATH.
///
/// # Errors
/// When there is none.
pub fn find(tool: Tool) -> Result<PathBuf, Nowhere> {
    let (names, option, setting): (&[&'static str], _, _) = match tool {
        Tool::Chromium => {
            let names = &["chromium", "chromium-browser", "google-chrome-stable", "google-chrome"];
            (names, "--browser", "SYMPHONY_CHROMIUM")
        }
        Tool::Schemathesis => (&["schemathesis"], "--schemathesis", "SYMPHONY_SCHEMATHESIS"),
    };
    if let Some(named) = env::var_os(setting).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let program = names.first().copied().unwrap_or_default();
    let mut folders: Vec<PathBuf> = cache::folders().map(|cache| cache.join(program).join("bin")).collect();
    folders.extend(USUAL.map(PathBuf::from));
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let mut files = folders.iter().flat_map(|folder| names.iter().map(|name| folder.join(name)));
    files.find(|file| file.is_file()).ok_or(Nowhere { program, option, setting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_nothing_says_what_to_do_next() {
        let nowhere = Nowhere { program: "chromium", option: "--browser", setting: "SYMPHONY_CHROMIUM" };
        let output = format!("{nowhere:?}");
        assert!(output.contains("scripts/setup --browser") && output.contains("SYMPHONY_CHROMIUM"), "{output}");
    }
}
