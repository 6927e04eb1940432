//! The user that a server runs as.
//!
//! `initdb`, `postgres` and `pgbouncer` refuse to run as root, so root starts them as an unprivileged user. Any other
//! user starts them as itself.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Users to run the server as instead of root, the preferred first.
const UNPRIVILEGED_USERS: [&str; 2] = ["postgres", "nobody"];

/// The user that the server runs as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    /// The user of this process.
    Caller,
    /// An unprivileged user, because this process runs as root.
    Unprivileged { uid: u32, gid: u32 },
}

impl Account {
    /// Picks the user for a server that this process starts.
    pub(crate) fn for_server() -> io::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Caller);
        }
        UNPRIVILEGED_USERS.into_iter().find_map(Self::user_named).ok_or_else(|| {
            io::Error::new(
                io::ErrorKind::NotFound,
                "PostgreSQL refuses to run as root, and neither user postgres nor user nobody exists",
            )
        })
    }

    /// Makes a command run as this user.
    pub(crate) fn apply(self, command: &mut Command) {
        if let Self::Unprivileged { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
    }

    /// Makes this user the owner of a file or folder.
    pub(crate) fn chown(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Caller => Ok(()),
            Self::Unprivileged { uid, gid } => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
        }
    }

    /// The numeric user id.
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Caller => rustix::process::geteuid().as_raw(),
            Self::Unprivileged { uid, .. } => uid,
        }
    }

    fn user_named(name: &str) -> Option<Self> {
        Some(Self::Unprivileged { uid: id("-u", name)?, gid: id("-g", name)? })
    }
}

/// Runs `id`, which looks users up in every source that the system is configured for.
fn id(flag: &str, name: &str) -> Option<u32> {
    let output = Command::new("id").args([flag, name]).output().ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
