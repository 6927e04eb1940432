//! What tells one event from another, and one claim from another.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::WorkerId;

/// The number of an event, which is its de-duplication key at a broker. Not an order of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct EventId(pub i64);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for EventId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The name under which events are claimed: a worker's name, and a suffix that no other claim has.
///
/// A claim of this lane has no token, so the name is all by which the database tells a claim from an earlier one.
/// Whoever used the same name twice could finish, late, what it holds again since. So there is no way to make
/// one but by claiming.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ProcessorId(String);

impl ProcessorId {
    /// Of the worker's name, so much that the whole fits into the database's 200 characters.
    const NAME: usize = 160;

    #[cfg_attr(not(feature = "tokio-postgres"), expect(dead_code, reason = "claims are made over that driver"))]
    pub(super) fn fresh(worker: &WorkerId) -> Self {
        let name: String = worker.as_str().chars().take(Self::NAME).collect();
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

    #[test]
    fn an_event_id_reads_what_it_prints() {
        assert_eq!(EventId(42).to_string().parse(), Ok(EventId(42)));
    }
}
