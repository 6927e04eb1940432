//! The temporary folder of one server, and how the folders of dead owners are swept away.
//!
//! The owner of a folder holds a lock on a file in it. The lock falls with its process, however that ends, so a
//! folder whose lock can be taken has no owner; a process number in a file could name another process by now.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::account::Account;
use super::process::child;

const PREFIX: &str = "symphony-pg-";
const OWNER: &str = "owner";
/// A socket's path may have 107 bytes on Linux and 103 elsewhere; what we append has less than 40.
const MAX_PARENT_LENGTH: usize = 60;

/// The folder of one server, removed on drop.
#[derive(Debug)]
pub(crate) struct Folder {
    dir: TempDir,
    path: PathBuf,
    /// Held for its lock.
    _owner: File,
}

impl Folder {
    /// Makes a folder that the server's user owns, and removes those that dead owners left.
    pub(crate) fn create(account: Account) -> io::Result<Self> {
        let parent = parent(account);
        sweep(&parent, account);
        let dir = tempfile::Builder::new().prefix(PREFIX).tempdir_in(&parent)?;
        account.take(dir.path())?;
        // Locked before it gets its name: a sweep must never see it without its owner.
        let unnamed = dir.path().join("owner.new");
        let owner = File::create_new(&unnamed)?;
        owner.lock()?;
        fs::rename(&unnamed, dir.path().join(OWNER))?;
        // The server reports where its data is by its real path.
        let path = dir.path().canonicalize()?;
        Ok(Self { dir, path, _owner: owner })
    }

    /// The folder itself, which also holds the socket.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The server's data.
    pub(crate) fn data(&self) -> PathBuf {
        data(&self.path)
    }

    /// What the server writes to stderr.
    pub(crate) fn log(&self) -> PathBuf {
        self.path.join("server.log")
    }

    /// Removes it, where dropping would hide that it could not be removed.
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
        Account::StandIn { .. } => usual.ancestors().all(open_to_all),
    };
    let short = usual.as_os_str().len() <= MAX_PARENT_LENGTH;
    if usual.is_absolute() && short && enterable { usual } else { PathBuf::from("/tmp") }
}

fn open_to_all(folder: &Path) -> bool {
    fs::metadata(folder).is_ok_and(|metadata| metadata.permissions().mode() & 0o001 != 0)
}

/// Removes the folders whose owner is dead. What cannot be removed is left: it does no harm but to the disk.
fn sweep(parent: &Path, account: Account) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        if entry.file_name().to_str().is_some_and(|name| name.starts_with(PREFIX)) {
            let _ = sweep_one(&entry.path(), account);
        }
    }
}

fn sweep_one(folder: &Path, account: Account) -> io::Result<()> {
    // The names in a temporary folder are anyone's: only what this user's servers left is ours to remove.
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
    fn a_folder_whose_owner_is_dead_is_swept_and_others_are_left() {
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
        // More than the largest process id there is, and negative, as a server in single-user mode writes it.
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
