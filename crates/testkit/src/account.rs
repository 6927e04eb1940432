//! The user that a server runs as.
//!
//! `initdb`, `postgres` and `pgbouncer` refuse to run as root, so root hands them to a user without rights. Everybody
//! else runs them as themselves.

use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

/// Users to run the server as instead of root, the preferred first.
const UNPRIVILEGED_USERS: [&str; 2] = ["postgres", "nobody"];

/// The user that the server runs as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Account {
    /// The user who called.
    Caller,
    /// Another, because the caller is root.
    StandIn { uid: u32, gid: u32 },
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
                "PostgreSQL does not run as root, and there is neither a user postgres nor a user nobody to run it",
            )
        })
    }

    /// Makes a command run as this user.
    pub(crate) fn apply(self, command: &mut Command) {
        if let Self::StandIn { uid, gid } = self {
            command.uid(uid).gid(gid);
        }
    }

    /// Gives a file or folder to this user.
    pub(crate) fn take(self, path: &Path) -> io::Result<()> {
        match self {
            Self::Caller => Ok(()),
            Self::StandIn { uid, gid } => std::os::unix::fs::chown(path, Some(uid), Some(gid)),
        }
    }

    /// The user's number.
    pub(crate) fn uid(self) -> u32 {
        match self {
            Self::Caller => rustix::process::geteuid().as_raw(),
            Self::StandIn { uid, .. } => uid,
        }
    }

    fn user_named(name: &str) -> Option<Self> {
        Some(Self::StandIn { uid: id("-u", name)?, gid: id("-g", name)? })
    }
}

/// Asks `id`, which knows every source of users that the system knows.
fn id(flag: &str, name: &str) -> Option<u32> {
    let output = Command::new("id").args([flag, name]).output().ok()?;
    if !output.status.success() {
        return None;
    }
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}
