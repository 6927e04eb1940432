//! Where `scripts/setup` puts what it unpacks.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// Where it unpacks for root, and where everybody may look.
const SHARED: &str = "/var/cache/symphony";

/// The caches that may be looked into, the preferred first.
pub(crate) fn folders() -> impl Iterator<Item = PathBuf> {
    own().into_iter().chain([PathBuf::from(SHARED)])
}

/// The cache of a user; root has the shared one, because other users cannot read root's home.
fn own() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return None;
    }
    let set = |name: &str| env::var_os(name).filter(|value: &OsString| !value.is_empty()).map(PathBuf::from);
    let base = set("XDG_CACHE_HOME").or_else(|| set("HOME").map(|home| home.join(".cache")))?;
    Some(base.join("symphony"))
}
