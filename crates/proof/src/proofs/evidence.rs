//! What a proof has to show for itself, in words that an auditor can read.
//!
//! A proof is a row of steps: something is tried, something is expected, something happens. The first step that goes
//! otherwise is its failure.

use std::fmt::{self, Display};
use std::panic::Location;

use crate::kit::scratch;

/// One thing that was tried.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was done, with real numbers.
    pub tried: String,
    /// What had to happen if the promise holds.
    pub expected: String,
    /// What happened.
    pub happened: String,
}

/// What a proof that held has to show: its steps, in order.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// At least one.
    pub steps: Vec<Step>,
}

/// The step at which a promise was found broken, or at which the proof could not go on.
#[derive(Debug, thiserror::Error)]
#[error("tried: {tried}\nexpected: {expected}\nhappened: {happened}")]
pub struct Failure {
    /// What was done, with real numbers.
    pub tried: String,
    /// What had to happen if the promise holds.
    pub expected: String,
    /// What happened instead.
    pub happened: String,
}

impl Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "tried: {}\nexpected: {}\nhappened: {}", self.tried, self.expected, self.happened)
    }
}

impl From<tokio_postgres::Error> for Failure {
    #[track_caller]
    fn from(error: tokio_postgres::Error) -> Self {
        Self::stopped(Location::caller(), words(&error))
    }
}

impl From<scratch::Error> for Failure {
    #[track_caller]
    fn from(error: scratch::Error) -> Self {
        let cause = std::error::Error::source(&error).map(|cause| format!(": {cause}")).unwrap_or_default();
        Self::stopped(Location::caller(), format!("{error}{cause}"))
    }
}

impl From<tokio::task::JoinError> for Failure {
    #[track_caller]
    fn from(error: tokio::task::JoinError) -> Self {
        Self::stopped(Location::caller(), error.to_string())
    }
}

impl Failure {
    /// The proof needed something on its way that it did not get.
    fn stopped(place: &Location<'_>, happened: String) -> Self {
        Self { tried: format!("a step of the proof at {place}"), expected: "it goes through".into(), happened }
    }
}

/// The SQLSTATE of an error, or `none` where the server did not answer.
pub(super) fn code(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("none", |state| state.code())
}

/// What the server said, with its SQLSTATE.
pub(super) fn words(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(
        || error.to_string(),
        |said| {
            let more = [said.detail(), said.where_()].into_iter().flatten().map(|more| format!("; {more}"));
            format!("{}: {}{}", said.code().code(), said.message(), more.collect::<String>())
        },
    )
}

/// Collects the steps of a proof and stops at the first that goes wrong.
#[derive(Debug, Default)]
pub(super) struct Trial {
    steps: Vec<Step>,
}

impl Trial {
    /// Two values that must be the same, and are worth showing.
    pub(super) fn same<T: PartialEq + Display>(
        &mut self,
        tried: impl Into<String>,
        what: &str,
        expected: T,
        happened: T,
    ) -> Result<(), Failure> {
        let holds = expected == happened;
        self.holds(tried, format!("{what}: {expected}"), format!("{what}: {happened}"), holds)
    }

    /// A statement that must be refused with this SQLSTATE.
    pub(super) fn refused<T>(
        &mut self,
        tried: impl Into<String>,
        expected: &str,
        result: Result<T, tokio_postgres::Error>,
    ) -> Result<(), Failure> {
        let (holds, happened) = match result {
            Ok(_) => (false, "it was allowed".to_owned()),
            Err(error) => (code(&error) == expected, format!("refused with {}", words(&error))),
        };
        self.holds(tried, format!("refused with {expected}"), happened, holds)
    }

    /// Something that holds or does not, in the proof's own words.
    pub(super) fn holds(
        &mut self,
        tried: impl Into<String>,
        expected: impl Into<String>,
        happened: impl Into<String>,
        holds: bool,
    ) -> Result<(), Failure> {
        let (tried, expected, happened) = (tried.into(), expected.into(), happened.into());
        if !holds {
            return Err(Failure { tried, expected, happened });
        }
        self.steps.push(Step { tried, expected, happened });
        Ok(())
    }

    /// The end of a proof that held.
    pub(super) fn evidence(self) -> Evidence {
        Evidence { steps: self.steps }
    }
}

/// Stops the proof unless two values are the same, without a step of its own: for what is checked many times.
pub(super) fn require<T: PartialEq + Display>(
    tried: impl FnOnce() -> String,
    expected: T,
    happened: T,
) -> Result<(), Failure> {
    if expected == happened {
        return Ok(());
    }
    Err(Failure { tried: tried(), expected: expected.to_string(), happened: happened.to_string() })
}
