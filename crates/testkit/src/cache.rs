//! The folders in which `scripts/setup` installs tools.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The cache of root, which every user can read.
const SHARED: &str = "/var/cache/symphony";

/// The caches to search, in order.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    own().into_iter().chain([PathBuf::from(SHARED)])
}

/// The user's own cache. Root uses the shared one, because other users cannot read root's home.
fn own() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let set = |name: &str| env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("symphony"))
}
