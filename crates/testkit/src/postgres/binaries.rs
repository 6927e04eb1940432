//! Finds `initdb` and `postgres`.
//!
//! It searches many folders, because a server is often installed and seldom on the PATH. It installs nothing:
//! `scripts/setup` does.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The environment variable that names the folder, without a search.
const SETTING: &str = "SYMPHONY_PG_BINDIR";
/// The folder in which `scripts/setup` installs for root, which every user can read.
const SHARED_CACHE: &str = "/var/cache/symphony/postgres";
const OLDEST_SUPPORTED: u32 = 15;

/// The programs of one PostgreSQL installation.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
    version: String,
    major: u32,
}

/// Why no PostgreSQL was found.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// It is not installed in any known folder.
    #[error(
        "found no PostgreSQL {OLDEST_SUPPORTED} or newer: run scripts/setup, \
         or set {SETTING} to a folder that holds initdb and postgres\nlooked in:{}",
        Listed(looked_in)
    )]
    NotFound {
        /// Every folder that was searched.
        looked_in: Vec<PathBuf>,
    },
    /// The named folder does not contain a working server.
    #[error(
        "{} does not contain a working PostgreSQL: it needs both initdb and postgres; \
         `scripts/setup --postgres 18` prints a folder that has them", folder.display()
    )]
    NoServerInFolder {
        /// The folder.
        folder: PathBuf,
    },
}

impl Binaries {
    /// The installation that `SYMPHONY_PG_BINDIR` names, or else the first of: `pg_config`, the PATH, Debian's folders,
    /// the cache of `scripts/setup`, Homebrew's folders. The highest version of each comes first.
    pub fn find() -> Result<Self, FindError> {
        if let Some(folder) = env::var_os(SETTING).filter(|folder| !folder.is_empty()) {
            return Self::at(folder);
        }
        let looked_in = candidates();
        looked_in
            .iter()
            .filter_map(|folder| Self::at(folder).ok())
            .find(|binaries| binaries.major >= OLDEST_SUPPORTED)
            .ok_or(FindError::NotFound { looked_in })
    }

    /// One installation of each supported version that is found.
    pub fn every() -> Vec<Self> {
        let mut every: Vec<Self> = Vec::new();
        let named = env::var_os(SETTING).filter(|folder| !folder.is_empty()).map(PathBuf::from);
        for folder in named.into_iter().chain(candidates()) {
            let found = Self::at(folder).ok().filter(|binaries| binaries.major >= OLDEST_SUPPORTED);
            every.extend(found.filter(|found| every.iter().all(|other| other.major != found.major)));
        }
        every
    }

    /// The installation in this folder.
    pub fn at(folder: impl Into<PathBuf>) -> Result<Self, FindError> {
        let folder = folder.into();
        inspect(&folder).ok_or(FindError::NoServerInFolder { folder })
    }

    /// The folder of the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version as the server prints it, such as `18.4` or `15.18 (Debian 15.18-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The major version, such as 18.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The path of a program, which need not exist.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Accepts a folder as an installation if it has both programs and the server prints its version.
fn inspect(folder: &Path) -> Option<Binaries> {
    // A symbolic link on the PATH leads to the real folder, which has the other programs as well.
    let server = folder.join("postgres").canonicalize().ok()?;
    let folder = server.parent()?.to_path_buf();
    if !folder.join("initdb").is_file() {
        return None;
    }
    let output = Command::new(&server).arg("--version").output().ok()?;
    let line = String::from_utf8(output.stdout).ok()?;
    let version = line.strip_prefix("postgres (PostgreSQL) ")?.trim().to_owned();
    let major = leading_number(&version)?;
    Some(Binaries { folder, version, major })
}

fn candidates() -> Vec<PathBuf> {
    let mut folders = Vec::new();
    folders.extend(from_pg_config());
    folders.extend(env::split_paths(&env::var_os("PATH").unwrap_or_default()).filter(|on_path| {
        // Other folders of the PATH would only make the error message longer.
        on_path.join("postgres").exists()
    }));
    folders.extend(versions_below(Path::new("/usr/lib/postgresql"), ""));
    folders.extend(versions_below(Path::new("/usr"), "pgsql-"));
    folders.extend(own_cache().into_iter().flat_map(|cache| versions_below(&cache, "")));
    folders.extend(versions_below(Path::new(SHARED_CACHE), ""));
    for homebrew in ["/opt/homebrew/opt", "/usr/local/opt"] {
        folders.extend(versions_below(Path::new(homebrew), "postgresql@"));
    }
    folders
}

fn from_pg_config() -> Option<PathBuf> {
    let output = Command::new("pg_config").arg("--bindir").output().ok()?;
    let folder = String::from_utf8(output.stdout).ok()?;
    (!folder.trim().is_empty()).then(|| PathBuf::from(folder.trim()))
}

/// The user's own cache. Root uses the shared one, because other users cannot read root's home.
fn own_cache() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let set = |name: &str| env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("symphony/postgres"))
}

/// The `bin` folders of `<parent>/<prefix><version>`, the highest version first.
fn versions_below(parent: &Path, prefix: &str) -> Vec<PathBuf> {
    let mut found: Vec<(u32, PathBuf)> = std::fs::read_dir(parent)
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let major = leading_number(entry.file_name().to_str()?.strip_prefix(prefix)?)?;
            Some((major, entry.path().join("bin")))
        })
        .collect();
    found.sort_by(|one, other| other.cmp(one));
    found.into_iter().map(|(_, folder)| folder).collect()
}

fn leading_number(text: &str) -> Option<u32> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    text[..end].parse().ok()
}

/// Formats paths, one per line.
struct Listed<'a>(&'a [PathBuf]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, " the usual folders, none of which exists");
        }
        self.0.iter().try_for_each(|path| write!(f, "\n  {}", path.display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_highest_version_below_a_folder_comes_first() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["pgsql-9", "pgsql-15", "pgsql-18", "pgsql-tools", "other-99"] {
            std::fs::create_dir(parent.path().join(name)).unwrap();
        }
        let found = versions_below(parent.path(), "pgsql-");
        let expected: Vec<_> =
            ["pgsql-18/bin", "pgsql-15/bin", "pgsql-9/bin"].map(|name| parent.path().join(name)).into();
        assert_eq!(found, expected);
    }

    #[test]
    fn a_folder_without_a_server_is_refused_with_the_next_step() {
        let folder = tempfile::tempdir().unwrap();
        let refusal = Binaries::at(folder.path()).unwrap_err().to_string();
        assert!(refusal.contains("scripts/setup --postgres"), "{refusal}");
    }

    #[test]
    fn finding_nothing_says_what_to_do_next() {
        let refusal = FindError::NotFound { looked_in: vec!["/somewhere/bin".into()] }.to_string();
        assert!(refusal.contains("run scripts/setup"), "{refusal}");
        assert!(refusal.contains("SYMPHONY_PG_BINDIR"), "{refusal}");
        assert!(refusal.contains("/somewhere/bin"), "{refusal}");
    }
}
