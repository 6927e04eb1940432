//! Which `initdb` and `postgres` to run.
//!
//! The search is wide because a server is often installed and seldom on the PATH. It only looks: `scripts/setup`
//! is what installs.

use std::env;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The setting that ends the search before it begins.
const SETTING: &str = "SYMPHONY_PG_BINDIR";
/// Where `scripts/setup` unpacks for root, and where everybody may look.
const SHARED_CACHE: &str = "/var/cache/symphony/postgres";
const OLDEST_SUPPORTED: u32 = 15;

/// The programs of one PostgreSQL installation.
#[derive(Clone, Debug)]
pub struct Binaries {
    folder: PathBuf,
    version: String,
    major: u32,
}

/// Why there is no PostgreSQL to run.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Nothing was found anywhere. Install it.
    #[error(
        "found no PostgreSQL {OLDEST_SUPPORTED} or newer: run scripts/setup, \
         or set {SETTING} to a folder that holds initdb and postgres\nlooked in:{}",
        Listed(looked_in)
    )]
    Nowhere {
        /// Every folder that was looked at.
        looked_in: Vec<PathBuf>,
    },
    /// The folder that was asked for does not hold a server. Name another.
    #[error(
        "{} does not hold a PostgreSQL that runs: it needs both initdb and postgres; \
         `scripts/setup --postgres 18` prints a folder that has them", folder.display()
    )]
    NotHere {
        /// The folder that was asked for.
        folder: PathBuf,
    },
}

impl Binaries {
    /// The installation that the setting `SYMPHONY_PG_BINDIR` names, or else the first that is found: by
    /// `pg_config`, on the PATH, in Debian's folders (the highest version), in the cache of `scripts/setup` (the
    /// highest version), in Homebrew's folders.
    pub fn find() -> Result<Self, FindError> {
        if let Some(folder) = env::var_os(SETTING).filter(|folder| !folder.is_empty()) {
            return Self::at(folder);
        }
        let looked_in = candidates();
        looked_in
            .iter()
            .filter_map(|folder| Self::at(folder).ok())
            .find(|binaries| binaries.major >= OLDEST_SUPPORTED)
            .ok_or(FindError::Nowhere { looked_in })
    }

    /// Every installation of a supported version that is found, one for each version.
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
        inspect(&folder).ok_or(FindError::NotHere { folder })
    }

    /// The folder that holds the programs.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The version as the server words it, such as `18.4` or `15.18 (Debian 15.18-0+deb12u1)`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// The major version, such as 18.
    pub fn major(&self) -> u32 {
        self.major
    }

    /// The path of one of the programs; not all of them have to be there.
    pub fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// Takes a folder for an installation if it has the two programs and the server can say its version.
fn inspect(folder: &Path) -> Option<Binaries> {
    // A link on the PATH leads to the real folder, which holds the other programs as well.
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
        // The rest of the PATH would only make the error longer.
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

/// The cache of a user; root has the shared one, because other users cannot read root's home.
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

/// Paths, one below the other.
struct Listed<'a>(&'a [PathBuf]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return write!(f, " the usual places, and none of them is there");
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
        let refusal = FindError::Nowhere { looked_in: vec!["/somewhere/bin".into()] }.to_string();
        assert!(refusal.contains("run scripts/setup"), "{refusal}");
        assert!(refusal.contains("SYMPHONY_PG_BINDIR"), "{refusal}");
        assert!(refusal.contains("/somewhere/bin"), "{refusal}");
    }
}
