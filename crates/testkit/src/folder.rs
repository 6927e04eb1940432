//! The temporary folder of one server, and the removal of folders that dead processes left.
//!
//! The owner of a folder locks a file in it. The kernel releases the lock when the process ends, so a folder whose lock
//! is free has no owner. A pid in a file would be less reliable, because pids are reused.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::account::Account;
use super::process::child;

const PREFIX: &str = "symphony-pg-";
const OWNER: &str = "owner";
/// A socket's path may have 107 bytes on Linux and 103 elsewhere; the folder's name and the socket's need less than 40.
const MAX_PARENT_LENGTH: usize = 60;

/// The folder of one server, removed on drop.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: TempDir,
    path: PathBuf,
    /// Holds the lock.
    _owner: File,
}

impl Folder {
    /// Creates a folder that the server's user owns, and removes the folders of dead owners.
    pub(crate) fn create(account: Account) -> io::Result<Self> {
        let parent = parent(account);
        sweep(&parent, account);
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent)?;
        account.chown(dir.path())?;
        // Locked before the rename: a sweep must never see the file unlocked.
        let unnamed = dir.path().join("owner.new");
        let owner = File::create_new(&unnamed)?;
        owner.lock()?;
        fs::rename(&unnamed, dir.path().join(OWNER))?;
        // The server reports its data directory as a real path.
        let path = dir.path().canonicalize()?;
        Ok(Self { dir, path, _owner: owner })
    }

    /// The folder itself, which also contains the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The server's data directory.
    pub(crate) fn data(&self) -> PathBuf {
        data(&self.path)
    }

    /// The server's stderr.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("server.log")
    }

    /// Removes the folder and reports an error, which dropping would hide.
    pub(crate) fn remove(self) -> io::Result<()> {
        self.dir.close()
    }
}

fn data(folder: &Path) -> PathBuf {
    folder.join("data")
}

/// The temporary folder, unless its path is too long for a socket or the server's user cannot enter it.
fn parent(account: Account) -> PathBuf {
    let usual = std::env::temp_dir();
    let enterable = match account {
        Account::Caller => true,
        Account::Unprivileged { .. } => usual.ancestors().all(open_to_all),
    };
    let short = usual.as_os_str().len() <= MAX_PARENT_LENGTH;
    if usual.is_absolute() && short && enterable { usual } else { PathBuf::from("/tmp") }
}

fn open_to_all(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
}

/// Removes the folders whose owner is dead. A folder that cannot be removed stays: it only takes up disk space.
fn sweep(parent: &Path, account: Account) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            let _ = sweep_one(&entry.path(), account);
        }
    }
}

fn sweep_one(folder: &Path, account: Account) -> io::Result<()> {
    // Any user can create such a name in a temporary folder: remove only folders of this user's servers.
    let metadata = fs::symlink_metadata(folder)?;
    if !metadata.is_dir() || metadata.uid() != account.uid() {
        return Ok(());
    }
    let owner = File::open(folder.join(OWNER))?;
    match owner.try_lock() {
        Ok(()) => {}
        Err(TryLockError::WouldBlock) => return Ok(()),
        Err(TryLockError::Error(error)) => return Err(error),
    }
    if child::end_orphan(&data(folder)) { fs::remove_dir_all(folder) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_whose_owner_is_dead_is_removed_and_others_stay() {
        let account = Account::Caller;
        let parent = tempfile::tempdir().unwrap();
        let names = ["dead", "dead_in_initdb", "alive", "beginning"];
        let [dead, dead_in_initdb, alive, beginning] = names.map(|name| {
            let folder = parent.path().join(format!("{PREFIX}{name}"));
            fs::create_dir(&folder).unwrap();
            folder
        });
        File::create(dead.join(OWNER)).unwrap();
        File::create(dead_in_initdb.join(OWNER)).unwrap();
        fs::create_dir(data(&dead_in_initdb)).unwrap();
        // Larger than any pid, and negative, as a server in single-user mode writes it.
        fs::write(data(&dead_in_initdb).join("postmaster.pid"), "-99999999\n").unwrap();
        let owner = File::create(alive.join(OWNER)).unwrap();
        owner.lock().unwrap();

        sweep(parent.path(), account);

        assert!(!dead.exists());
        assert!(!dead_in_initdb.exists());
        assert!(alive.exists());
        assert!(beginning.exists(), "an unlocked folder belongs to a process that is about to lock it");
    }
}
