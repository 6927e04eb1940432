//! Finds `etcd`, `haproxy` and `patroni`. It installs nothing: `scripts/setup --patroni` does.

use std::env;
use std::fmt;
use std::path::PathBuf;

use crate::cache;

const USUAL_FOLDERS: [&str; 4] = ["/usr/bin", "/usr/sbin", "/usr/local/bin", "/opt/homebrew/bin"];

/// A program was not found.
#[derive(thiserror::Error)]
#[error("found no {program}: run `scripts/setup --patroni`, or set {setting} to the program")]
pub struct FindError {
    program: &'static str,
    setting: &'static str,
}

/// `unwrap` prints this, so it must say what to do next.
impl fmt::Debug for FindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The programs of a cluster, besides PostgreSQL.
pub(super) struct Programs {
    pub(super) etcd: PathBuf,
    pub(super) haproxy: PathBuf,
    pub(super) patroni: PathBuf,
}

/// The programs that the environment variables name, or else the first in the cache of `scripts/setup`, the usual
/// folders and the PATH.
pub(super) fn find() -> Result<Programs, FindError> {
    Ok(Programs {
        etcd: program("etcd", "SYMPHONY_ETCD_PROGRAM")?,
        haproxy: program("haproxy", "SYMPHONY_HAPROXY_PROGRAM")?,
        patroni: program("patroni", "SYMPHONY_PATRONI_PROGRAM")?,
    })
}

fn program(program: &'static str, setting: &'static str) -> Result<PathBuf, FindError> {
    if let Some(named) = env::var_os(setting).filter(|named| !named.is_empty()) {
        return Ok(named.into());
    }
    let mut folders: Vec<PathBuf> = cache::folders().map(|cache| cache.join("patroni/bin")).collect();
    folders.extend(USUAL_FOLDERS.map(PathBuf::from));
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()));
    let found = folders.into_iter().map(|folder| folder.join(program)).find(|path| path.is_file());
    found.ok_or(FindError { program, setting })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_nothing_says_what_to_do_next() {
        let refusal = format!("{:?}", FindError { program: "etcd", setting: "SYMPHONY_ETCD_PROGRAM" });
        assert!(
            refusal.contains("`scripts/setup --patroni`") && refusal.contains("SYMPHONY_ETCD_PROGRAM"),
            "{refusal}"
        );
    }
}
