//! Which `pgbouncer` to run. It only looks: `scripts/setup` is what installs.

use std::env;
use std::fmt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::cache;

/// The setting that ends the search before it begins.
const SETTING: &str = "SYMPHONY_PGBOUNCER";
/// Debian's folder, which is not on the PATH of an ordinary user, and where the others have it.
const USUAL: [&str; 4] = ["/usr/sbin", "/usr/bin", "/usr/local/bin", "/opt/homebrew/bin"];

/// Why there is no PgBouncer to run.
#[derive(thiserror::Error)]
pub enum FindError {
    /// Nothing was found anywhere. Install it.
    #[error(
        "found no PgBouncer: run `scripts/setup --pgbouncer`, or set {SETTING} to the program \
         (looked on the PATH, in {} and in the cache of scripts/setup)", USUAL.join(", ")
    )]
    Nowhere,
    /// What was asked for is no PgBouncer that runs. Name another.
    #[error(
        "{SETTING} is {}, which is no PgBouncer that runs: `scripts/setup --pgbouncer` prints one that does", program.display()
    )]
    NotThis {
        /// What was asked for.
        program: PathBuf,
    },
}

/// Tests unwrap, and what they print is this: it has to say what to do next.
impl fmt::Debug for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A PgBouncer that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Found {
    /// The program.
    pub program: PathBuf,
    /// Its version, such as (1, 18).
    pub version: (u32, u32),
}

/// The program that the setting `SYMPHONY_PGBOUNCER` names, or else the first that is found: on the PATH, in the usual
/// folders, in the cache of `scripts/setup`.
///
/// # Errors
/// When there is none that runs.
pub fn find() -> Result<Found, FindError> {
    if let Some(program) = env::var_os(SETTING).filter(|program| !program.is_empty()) {
        return inspect(PathBuf::from(&program)).ok_or(FindError::NotThis { program: program.into() });
    }
    candidates().into_iter().find_map(inspect).ok_or(FindError::Nowhere)
}

fn candidates() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let mut folders: Vec<PathBuf> = env::split_paths(&path).chain(USUAL.map(PathBuf::from)).collect();
    folders.extend(cache::folders().map(|cache| cache.join("pgbouncer/bin")));
    folders.into_iter().map(|folder| folder.join("pgbouncer")).collect()
}

/// Takes a file for PgBouncer if it says so.
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
        for refusal in [FindError::Nowhere, FindError::NotThis { program: "/bin/sh".into() }] {
            let refusal = format!("{refusal:?}");
            assert!(refusal.contains("`scripts/setup --pgbouncer`"), "{refusal}");
            assert!(refusal.contains(SETTING), "{refusal}");
        }
    }

    #[test]
    fn what_is_no_pgbouncer_is_not_taken_for_one() {
        for other in ["/bin/sh", "/bin/echo", "/nowhere/pgbouncer"] {
            assert_eq!(inspect(other.into()), None);
        }
        assert_eq!(version("PgBouncer 1.18.0\nlibevent 2.1\n"), Some((1, 18)));
    }
}
