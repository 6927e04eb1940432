//! Copies the data directory of a running server.
//!
//! `pg_basebackup` does the same, but some builds of PostgreSQL lack it. The copy is inconsistent until WAL from the
//! start of the backup is replayed. The WAL is not copied: a standby streams it from the server.

use std::fs;
use std::io;
use std::path::Path;

use crate::account::Account;

/// Folders that are empty in the copy: their content belongs to the running server, or is created again.
const EMPTY: [&str; 8] = [
    "pg_dynshmem",
    "pg_notify",
    "pg_replslot",
    "pg_serial",
    "pg_snapshots",
    "pg_stat_tmp",
    "pg_subtrans",
    "pg_wal",
];
/// Files that belong to the running server.
const EXCLUDED_FILES: [&str; 6] = [
    "postmaster.pid",
    "postmaster.opts",
    "postgresql.auto.conf.tmp",
    "backup_label",
    "standby.signal",
    "pg_internal.init",
];
/// Copied last, so that it is at least as new as every other file.
const CONTROL: &str = "global/pg_control";

/// Copies everything that does not belong to the running server, and makes the server's user its owner.
pub(super) fn copy(from: &Path, to: &Path, account: Account) -> io::Result<()> {
    folder(from, to, account)?;
    for name in EMPTY {
        make(&to.join(name), account)?;
    }
    file(&from.join(CONTROL), &to.join(CONTROL), account)
}

fn folder(from: &Path, to: &Path, account: Account) -> io::Result<()> {
    make(to, account)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let named = name.to_string_lossy();
        if EMPTY.contains(&&*named) || EXCLUDED_FILES.contains(&&*named) || named.starts_with("pgsql_tmp") {
            continue;
        }
        let (from, to) = (entry.path(), to.join(&name));
        let copied = match entry.file_type() {
            Ok(kind) if kind.is_dir() => folder(&from, &to, account),
            Ok(_) if from.ends_with(CONTROL) => Ok(()),
            Ok(_) => file(&from, &to, account),
            Err(error) => Err(error),
        };
        match copied {
            // The server has removed it in the meantime; WAL replay will do the same.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => copied?,
        }
    }
    Ok(())
}

/// Creates a folder with mode 0700, which PostgreSQL requires.
fn make(folder: &Path, account: Account) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    account.chown(folder)
}

fn file(from: &Path, to: &Path, account: Account) -> io::Result<()> {
    fs::copy(from, to)?;
    account.chown(to)
}
