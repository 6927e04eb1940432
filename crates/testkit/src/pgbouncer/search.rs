//! Finds `pgbouncer`. It installs nothing: `scripts/setup --pgbouncer` does.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cache;

/// The environment variable that names the program, without a search.
const SETTING: &str = "SYMPHONY_PGBOUNCER";
/// Debian's folder, which is not on the PATH of an ordinary user, and those of other systems.
const USUAL_FOLDERS: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];

/// Why no PgBouncer was found.
#[derive(thiserror::Error)]
pub enum FindError {
    /// It is not installed in any known folder.
    #[error(
        "found no PgBouncer: run `scripts/setup --pgbouncer`, or set {SETTING} to the program \
         (looked on the PATH, in {} and in the cache of scripts/setup)", USUAL_FOLDERS.join(", ")
    )]
    NotFound,
    /// The environment variable names a file that is not a working PgBouncer.
    #[error(
        "{SETTING} is {}, which is not a working PgBouncer: `scripts/setup --pgbouncer` prints the path of one",
        program.display()
    )]
    NotPgBouncer {
        /// The value of the variable.
        program: PathBuf,
    },
}

/// `unwrap` prints this, so it must say what to do next.
impl fmt::Debug for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A working PgBouncer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The program.
    pub program: PathBuf,
    /// Its version, such as (1, 18).
    pub version: (u32, u32),
}

/// The program that `SYMPHONY_PGBOUNCER` names, or else the first on the PATH, in the usual folders and in the cache of
/// `scripts/setup`.
///
/// # Errors
/// When none of them works.
pub fn find() -> Result<Found, FindError> {
    if let Some(program) = env::var_os(SETTING).filter(|program| !program.is_empty()) {
        return inspect(PathBuf::from(&program)).ok_or(FindError::NotPgBouncer { program: program.into() });
    }
    candidates().into_iter().find_map(inspect).ok_or(FindError::NotFound)
}

fn candidates() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).chain(USUAL_FOLDERS.map(PathBuf::from)).collect();
    folders.extend(cache::folders().map(|cache| cache.join("pgbouncer/bin")));
    folders.into_iter().map(|folder| folder.join("pgbouncer")).collect()
}

/// Accepts a file as PgBouncer if its `--version` says so.
fn inspect(program: PathBuf) -> Option<Found> {
    let text = Command::new(&program).arg("--version").stdin(Stdio::null()).output().ok()?;
    let version = version(std::str::from_utf8(&text.stdout).ok()?)?;
    Some(Found { program, version })
}

fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.strip_prefix("PgBouncer ")?.lines().next()?.split('.');
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_nothing_says_what_to_do_next() {
        for refusal in [FindError::NotFound, FindError::NotPgBouncer { program: "/bin/sh".into() }] {
            let refusal = format!("{refusal:?}");
            assert!(refusal.contains("`scripts/setup --pgbouncer`"), "{refusal}");
            assert!(refusal.contains(SETTING), "{refusal}");
        }
    }

    #[test]
    fn another_program_is_not_accepted_as_pgbouncer() {
        for other in ["/bin/sh", "/bin/echo", "/nowhere/pgbouncer"] {
            assert_eq!(inspect(other.into()), None);
        }
        assert_eq!(version("PgBouncer 1.18.0\nlibevent 2.1\n"), Some((1, 18)));
    }
}
