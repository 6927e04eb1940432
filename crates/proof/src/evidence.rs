//! The evidence that a proof prints for an auditor.
//!
//! A proof is a list of steps: what it tried, what it expected, what happened. The first step with an unexpected
//! result is its failure.

use std::fmt::{self, Display};
use std::panic::Location;

use symphony_testkit::test_database;

/// One check.
#[derive(Clone, Debug)]
pub struct Step {
    /// What was done, with real numbers.
    pub tried: String,
    /// What happens if the guarantee holds.
    pub expected: String,
    /// What happened.
    pub happened: String,
}

/// The steps of a proof that held, in order.
#[derive(Clone, Debug)]
pub struct Evidence {
    /// At least one.
    pub steps: Vec<Step>,
}

/// The step that found a guarantee broken, or at which the proof could not continue.
#[derive(Debug, thiserror::Error)]
#[error("tried: {tried}\nexpected: {expected}\nhappened: {happened}")]
pub struct Failure {
    /// What was done, with real numbers.
    pub tried: String,
    /// What happens if the guarantee holds.
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
        Self::stopped(Location::caller(), describe(&error))
    }
}

impl From<test_database::Error> for Failure {
    #[track_caller]
    fn from(error: test_database::Error) -> Self {
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
    /// A statement that the proof needs has failed.
    fn stopped(place: &Location<'_>, happened: String) -> Self {
        Self { tried: format!("a statement of the proof at {place}"), expected: "it succeeds".into(), happened }
    }
}

/// The SQLSTATE of an error, or `none` if it did not come from the server.
pub(super) fn sqlstate(error: &tokio_postgres::Error) -> &str {
    error.code().map_or("none", |state| state.code())
}

/// The error of the server, with its SQLSTATE, detail and context.
pub(super) fn describe(error: &tokio_postgres::Error) -> String {
    error.as_db_error().map_or_else(
        || error.to_string(),
        |error| {
            let more = [error.detail(), error.where_()].into_iter().flatten().map(|more| format!("; {more}"));
            format!("{}: {}{}", error.code().code(), error.message(), more.collect::<String>())
        },
    )
}

/// Records the steps of a proof and stops it at the first that fails.
#[derive(Debug, Default)]
pub(super) struct Recorder {
    steps: Vec<Step>,
}

impl Recorder {
    /// Two values that must be equal.
    pub(super) fn check_equal<T: PartialEq + Display>(
        &mut self,
        tried: impl Into<String>,
        what: &str,
        expected: T,
        happened: T,
    ) -> Result<(), Failure> {
        let holds = expected == happened;
        self.check(tried, format!("{what}: {expected}"), format!("{what}: {happened}"), holds)
    }

    /// A statement that must be refused with this SQLSTATE.
    pub(super) fn check_refused<T>(
        &mut self,
        tried: impl Into<String>,
        expected: &str,
        result: Result<T, tokio_postgres::Error>,
    ) -> Result<(), Failure> {
        let (holds, happened) = match result {
            Ok(_) => (false, "allowed".to_owned()),
            Err(error) => (sqlstate(&error) == expected, format!("refused with {}", describe(&error))),
        };
        self.check(tried, format!("refused with {expected}"), happened, holds)
    }

    /// Any condition, with its own texts.
    pub(super) fn check(
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

    /// The evidence of a proof that held.
    pub(super) fn finish(self) -> Evidence {
        Evidence { steps: self.steps }
    }
}

/// Stops the proof unless two values are equal, and records no step: for conditions that are checked many times.
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
