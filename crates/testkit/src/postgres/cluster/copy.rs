//! The data folder of a running server, copied while it writes.
//!
//! This is what `pg_basebackup` does, which some builds of PostgreSQL come without. What is copied is torn, and made
//! whole by the log from the start of the backup onwards, which is not copied: a standby fetches it from the server.

use std::fs;
use std::io;
use std::path::Path;

use crate::account::Account;

/// Folders of which a copy gets none of the content: it belongs to the running server, or is made anew.
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
const LEFT_OUT: [&str; 6] = [
    "postmaster.pid",
    "postmaster.opts",
    "postgresql.auto.conf.tmp",
    "backup_label",
    "standby.signal",
    "pg_internal.init",
];
/// Copied last, so that it is not older than anything else.
const CONTROL: &str = "global/pg_control";

/// Copies all but what belongs to the running server, and gives it to the server's user.
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
        if EMPTY.contains(&&*named) || LEFT_OUT.contains(&&*named) || named.starts_with("pgsql_tmp") {
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
            // The server has removed it meanwhile: the log says so as well.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            copied => copied?,
        }
    }
    Ok(())
}

/// Makes a folder that only the server's user may enter, without which PostgreSQL refuses it.
fn make(folder: &Path, account: Account) -> io::Result<()> {
    use std::os::unix::fs::DirBuilderExt;
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
        made => made?,
    }
    account.take(folder)
}

fn file(from: &Path, to: &Path, account: Account) -> io::Result<()> {
    fs::copy(from, to)?;
    account.take(to)
}
