//! Secrets and certificates that are read again when their files change, without a restart.
//!
//! Requests in flight keep what they began with. A new file that cannot be used changes nothing: the old secret stays,
//! and the log says why.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};

use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::config::SettingError;
use crate::error_text::root_cause;

/// The most bytes of a file that are compared: certificates with their chain are far smaller.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

type Fingerprint = [u8; 32];
type Load<T> = Box<dyn Fn() -> Result<T, SettingError> + Send + Sync>;

/// A value that is read from files.
pub(super) struct Reloadable<T>(Arc<Files<T>>);

struct Files<T> {
    /// Whose files: `rail sepa`.
    owner: String,
    paths: Vec<PathBuf>,
    load: Load<T>,
    current: RwLock<Arc<T>>,
    /// What the files held at the last look, whether it could be used or not.
    seen: Mutex<Fingerprint>,
}

/// Something whose files can be looked at.
trait Reload: Send + Sync {
    /// Reads the files again if they have changed. Returns whether there is a new value.
    fn reload(&self) -> bool;
    /// Forgets the last look, so that a file that cannot be used is reported again.
    fn forget(&self);
}

/// What is in use. Dropped entries are removed at the next look.
static IN_USE: Mutex<Vec<Weak<dyn Reload>>> = Mutex::new(Vec::new());

fn in_use() -> MutexGuard<'static, Vec<Weak<dyn Reload>>> {
    IN_USE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Reads the secrets and certificates of all HTTP destinations again whose files have changed since the last look.
///
/// Returns how many have a new value. `report_again` also logs files that could not be used at an earlier look.
pub fn reload_secrets(report_again: bool) -> usize {
    let all: Vec<_> = {
        let mut all = in_use();
        all.retain(|entry| entry.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    all.iter()
        .filter(|entry| {
            if report_again {
                entry.forget();
            }
            entry.reload()
        })
        .count()
}

impl<T: Send + Sync + 'static> Reloadable<T> {
    /// Loads the value, and watches these files.
    pub(super) fn new(
        owner: &str,
        paths: Vec<PathBuf>,
        load: impl Fn() -> Result<T, SettingError> + Send + Sync + 'static,
    ) -> Result<Self, SettingError> {
        // Before the load: a file that changes in between is read again at the next look.
        let seen = Mutex::new(fingerprint(&paths));
        let current = RwLock::new(Arc::new(load()?));
        let files = Arc::new(Files { owner: owner.to_owned(), paths, load: Box::new(load), current, seen });
        if !files.paths.is_empty() {
            let entry: Arc<dyn Reload> = Arc::clone(&files) as _;
            in_use().push(Arc::downgrade(&entry));
        }
        Ok(Self(files))
    }

    /// The value of the last file that could be used.
    pub(super) fn current(&self) -> Arc<T> {
        Arc::clone(&self.0.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

impl<T: Send + Sync> Reload for Files<T> {
    fn reload(&self) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let now = fingerprint(&self.paths);
        if *seen == now {
            return false;
        }
        *seen = now;
        match (self.load)() {
            Ok(value) => {
                *self.current.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(value);
                tracing::info!(
                    event = "SECRET_RELOADED",
                    owner = self.owner,
                    "a secret or certificate was read again"
                );
                true
            }
            Err(error) => {
                let error = error.owned_by(self.owner.clone());
                let cause = error.source.as_ref().map(|source| root_cause(source.as_ref()));
                tracing::warn!(
                    event = "SECRET_NOT_RELOADED",
                    owner = self.owner,
                    setting = error.setting,
                    problem = error.problem,
                    cause,
                    "a changed secret or certificate cannot be used: the old one stays in use"
                );
                false
            }
        }
    }

    fn forget(&self) {
        // No file has this digest.
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Fingerprint::default();
    }
}

/// A digest of what the files hold. A file that cannot be read has a digest too.
fn fingerprint(paths: &[PathBuf]) -> Fingerprint {
    let mut digest = Sha256::new();
    for path in paths {
        let mut bytes = Zeroizing::new(Vec::new());
        let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES).read_to_end(&mut bytes));
        digest.update([u8::from(read.is_ok())]);
        digest.update(Sha256::digest(&*bytes));
    }
    digest.finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secret::SecretSource;

    #[test]
    fn a_changed_file_is_read_again_and_a_broken_one_changes_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "one").unwrap();
        let source = SecretSource::File(path.clone());
        let secret = Reloadable::new("rail sepa", vec![path.clone()], move || {
            source.read("bearer_file").map(|secret| secret.expose().to_owned())
        })
        .unwrap();
        let in_flight = secret.current();
        assert!(!secret.0.reload());
        std::fs::write(&path, "two").unwrap();
        assert!(secret.0.reload());
        assert_eq!((in_flight.as_str(), secret.current().as_str()), ("one", "two"));
        std::fs::write(&path, "  ").unwrap();
        assert!(!secret.0.reload());
        std::fs::remove_file(&path).unwrap();
        assert!(!secret.0.reload());
        assert_eq!(*secret.current(), "two");
        std::fs::write(&path, "three").unwrap();
        assert!(secret.0.reload() && !secret.0.reload());
        assert_eq!(*secret.current(), "three");
    }

    #[test]
    fn a_value_that_is_dropped_is_not_looked_at_any_more() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secret");
        std::fs::write(&path, "one").unwrap();
        let value = Reloadable::new("rail sepa", vec![path], || Ok(())).unwrap();
        let files = Arc::downgrade(&value.0);
        drop(value);
        assert_eq!(files.strong_count(), 0);
    }
}
