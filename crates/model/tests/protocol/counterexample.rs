//! The shortest way in which a variant breaks a property, and the file that keeps it.

use std::fmt::Write as _;
use std::path::PathBuf;

use stateright::{Checker as _, HasDiscoveries, Model as _, Path};

use crate::action::Action;
use crate::model::Protocol;
use crate::scenario;
use crate::state::State;

/// The shortest path to a state in which the property does not hold.
///
/// The checker searches in breadth, but in blocks, and keeps the last violation of a block. So the search is repeated with
/// a smaller depth until nothing is found.
pub(crate) fn shortest(model: &Protocol, property: &'static str) -> Option<Vec<String>> {
    let mut found: Option<Path<State, Action>> = None;
    loop {
        let mut checker = model.clone().checker().finish_when(HasDiscoveries::AnyOf([property].into()));
        if let Some(path) = &found {
            // A path of n states has n - 1 steps; states at the maximal depth are not looked at.
            checker = checker.target_max_depth(path.clone().into_states().len());
        }
        match checker.spawn_bfs().join().discovery(property) {
            Some(path) => found = Some(path),
            None => break,
        }
    }
    let mut actions = found?.into_actions();
    // The workers are alike: the first to act is A.
    if actions.iter().find_map(|action| action.worker()) == Some(1) {
        actions.iter_mut().for_each(|action| *action = action.by_the_other_worker());
    }
    let mut state = State::initial();
    let steps = actions.into_iter().map(|action| {
        let before = state.clone();
        model.apply(&mut state, action);
        action.describe(&before, &state)
    });
    Some(steps.collect())
}

/// The text of a counterexample.
pub(crate) fn text(rule: &str, scenario: &str, property: &str, steps: &[String]) -> String {
    let mut text = format!("Broken rule: {rule}.\nScenario: {scenario}.\nViolated: {property}.\n\n");
    for (number, step) in steps.iter().enumerate() {
        writeln!(text, "{:>2}. {step}", number + 1).unwrap();
    }
    text
}

/// Compares a counterexample with its file, or writes it if `SYMPHONY_PROTOCOL` is `write`. The long form has others.
pub(crate) fn compare(name: &str, text: &str) {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/protocol/counterexamples");
    let file = folder.join(format!("{name}.txt"));
    if scenario::is_long() {
        return;
    }
    if std::env::var("SYMPHONY_PROTOCOL").is_ok_and(|value| value == "write") {
        std::fs::write(&file, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&file).unwrap_or_default();
    assert_eq!(kept, text, "{} differs; SYMPHONY_PROTOCOL=write writes it", file.display());
}
