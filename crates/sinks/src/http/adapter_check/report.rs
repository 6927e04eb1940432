//! The results of the checks.

use serde::Serialize;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum CheckState {
    /// The adapter keeps this part of the protocol.
    Passed,
    /// The adapter is safe, and leaves out a part that the protocol recommends.
    Warned,
    /// The adapter breaks the protocol.
    Failed,
    /// The check needs an option that was not given.
    Skipped,
}

/// One check and its result.
#[derive(Clone, Debug, Serialize)]
pub struct CheckResult {
    /// The part of the protocol.
    pub group: &'static str,
    /// What must hold.
    pub name: String,
    /// What the suite found.
    pub state: CheckState,
    /// What it sent.
    pub tried: &'static str,
    /// What the protocol demands.
    pub expected: &'static str,
    /// What came back.
    pub got: String,
    /// How to correct it; none if the check passed.
    pub advice: Option<&'static str>,
}

/// Every result, in the order of the checks.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Report {
    /// The results.
    pub checks: Vec<CheckResult>,
    /// Whether the suite ended after its first check, because the adapter executed no payment.
    pub stopped: bool,
}

impl Report {
    /// How many checks ended like this.
    #[must_use]
    pub fn count(&self, state: CheckState) -> usize {
        self.checks.iter().filter(|check| check.state == state).count()
    }

    pub(super) fn add(&mut self, check: &Check, outcome: Outcome) {
        self.add_named(check, check.name.to_owned(), outcome);
    }

    /// Adds a check whose name holds what was tried in particular.
    pub(super) fn add_named(&mut self, check: &Check, name: String, outcome: Outcome) {
        let (state, got) = match outcome {
            Outcome::Passed(got) => (CheckState::Passed, got),
            Outcome::Warned(got) => (CheckState::Warned, got),
            Outcome::Failed(got) => (CheckState::Failed, got),
            Outcome::Skipped(why) => (CheckState::Skipped, why),
        };
        let advice = matches!(state, CheckState::Failed | CheckState::Warned).then_some(check.advice);
        let Check { group, tried, expected, .. } = *check;
        self.checks.push(CheckResult { group, name, state, tried, expected, got, advice });
    }
}

/// A check, without its result.
pub(super) struct Check {
    pub(super) group: &'static str,
    pub(super) name: &'static str,
    pub(super) tried: &'static str,
    pub(super) expected: &'static str,
    pub(super) advice: &'static str,
}

/// The result of a check, with what came back.
pub(super) enum Outcome {
    Passed(String),
    Warned(String),
    Failed(String),
    Skipped(String),
}

impl From<Result<String, String>> for Outcome {
    fn from(result: Result<String, String>) -> Self {
        match result {
            Ok(got) => Self::Passed(got),
            Err(got) => Self::Failed(got),
        }
    }
}
