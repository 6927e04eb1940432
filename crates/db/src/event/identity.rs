//! The name under which a worker claims events.

use std::fmt;

use uuid::Uuid;

use crate::WorkerId;

/// The name of one claim: the worker's name, and a suffix that no other claim has.
///
/// A claim of this lane has no lease token, so the database tells claims apart by this name. With a reused name, a late
/// completion of an old claim would complete the new one. So only a claim creates one.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessorId(String);

impl ProcessorId {
    /// The maximum length of the worker's name, so that the whole fits the database's 200 characters.
    const MAX_WORKER_NAME: usize = 160;

    pub(super) fn fresh(worker: &WorkerId) -> Self {
        let name: String = worker.as_str().chars().take(Self::MAX_WORKER_NAME).collect();
        Self(format!("{name}#{}", Uuid::new_v4().simple()))
    }

    /// The name as the database has it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ProcessorId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_claims_of_one_worker_have_the_same_name() {
        let worker = WorkerId::from("relayer-1");
        let (one, other) = (ProcessorId::fresh(&worker), ProcessorId::fresh(&worker));
        assert!(one.as_str().starts_with("relayer-1#"));
        assert_ne!(one, other);
    }

    #[test]
    fn the_longest_name_fits_into_the_database() {
        let worker = WorkerId::from("ä".repeat(500));
        assert_eq!(ProcessorId::fresh(&worker).as_str().chars().count(), 193);
    }
}
