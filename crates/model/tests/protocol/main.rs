//! The payment protocol, searched in full: every state that two relayers, a bank and a database can reach.
//!
//! The tests with real processes try some thousand interleavings of faults. This model has all of them, for one or two payments.
//! What it finds is a sequence of steps; what it does not find does not exist within its bounds.
//!
//! # The protocol, in the order in which to read it
//!
//! 1. [`state`]: a database with pending rows, leases and a ledger; two workers; a bank that executes payments and remembers
//!    their keys.
//! 2. [`action`]: what can happen in one step. Everything that can fail is a step too: an answer is lost, a worker crashes, a
//!    lease expires, the bank forgets a key, a standby that has not received everything is promoted.
//! 3. [`model`]: which steps are possible in a state.
//! 4. [`transition`]: what a step does. Its decisions are the functions of `symphony_testkit::protocol::rules`.
//! 5. [`property`]: what must hold in every state.
//! 6. [`scenario`]: which faults may happen together.
//! 7. [`variant`]: protocols with one rule broken. The checker finds each, and `counterexamples/` has the shortest way.
//! 8. [`limit`]: what the protocol does not prevent, in the same form.
//!
//! The checker is Stateright. Variants are searched in breadth, for the shortest counterexample; see [`counterexample`]. The
//! protocol as it is is searched in depth, up to an exchange of the two workers: they are configured alike, and no step
//! depends on which of them does it.
//!
//! # Forms
//!
//! `SYMPHONY_PROTOCOL=long` allows one more attempt in each scenario, and late requests in all of them.
//! `SYMPHONY_PROTOCOL=write` writes `counterexamples/` after a change of the protocol. The states and lengths are in
//! docs/decisions/0015-protocol-model.md, and a test compares them.
#![expect(clippy::unwrap_used, reason = "a test that cannot read its files has failed")]

mod action;
mod counterexample;
mod limit;
mod model;
mod property;
mod scenario;
mod state;
mod transition;
mod variant;

use std::path::Path;

use stateright::{Checker as _, Expectation, Model as _};

use crate::model::Protocol;
use crate::state::State;

/// Fails unless the page about this model has each of these rows.
fn assert_documented(rows: &[String]) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/decisions/0015-protocol-model.md");
    let page = std::fs::read_to_string(page).unwrap();
    let missing: Vec<_> = rows.iter().filter(|row| !page.lines().any(|line| line == row.as_str())).collect();
    assert!(missing.is_empty(), "0015-protocol-model.md lacks these rows: {missing:#?}");
}

/// 12345 as 12,345.
fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let groups: Vec<_> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

#[test]
fn the_protocol_holds_in_every_state_of_every_scenario() {
    let mut rows = Vec::new();
    for scenario in scenario::all() {
        let name = scenario.name;
        let model = Protocol::correct(scenario);
        let checker = model.clone().checker().symmetry_fn(State::representative).spawn_dfs().join();
        println!("{name}: {} states, {} steps deep", checker.unique_state_count(), checker.max_depth());
        for property in model.properties() {
            let found = checker.discovery(property.name).is_some();
            if property.expectation == Expectation::Sometimes {
                assert!(found, "{name}: the search has no state where {}", property.name);
            } else if found {
                let steps = counterexample::shortest(&model, property.name).unwrap();
                panic!("{}", counterexample::text("none", name, property.name, &steps));
            }
        }
        rows.push(format!("| {name} | {} | {} |", grouped(checker.unique_state_count()), checker.max_depth()));
    }
    if !scenario::is_long() {
        assert_documented(&rows);
    }
}

#[test]
fn each_broken_rule_is_found_with_its_shortest_counterexample() {
    let mut rows = Vec::new();
    for variant::Broken { variant, name, rule, scenario, property } in variant::all() {
        let model = Protocol { broken: Some(variant), ..Protocol::correct(scenario) };
        let steps = counterexample::shortest(&model, property).unwrap_or_default();
        assert!(!steps.is_empty(), "{name}: {property} holds although {rule}");
        counterexample::compare(name, &counterexample::text(rule, model.scenario.name, property, &steps));
        rows.push(format!("| {name} | {rule} | {} |", steps.len()));
    }
    if !scenario::is_long() {
        assert_documented(&rows);
    }
}

#[test]
fn what_the_protocol_assumes_is_kept_as_counterexamples() {
    let mut rows = Vec::new();
    for limit::Limit { name, assumption, scenario, property, late_requests_are_excused } in limit::all() {
        let model = Protocol { late_requests_are_excused, ..Protocol::correct(scenario) };
        let steps = counterexample::shortest(&model, property).unwrap_or_default();
        assert!(!steps.is_empty(), "{name}: {property} holds: the assumption is not needed any more");
        let rule = format!("none. Assumed: {assumption}");
        counterexample::compare(name, &counterexample::text(&rule, model.scenario.name, property, &steps));
        rows.push(format!("| {name} | {} |", steps.len()));
    }
    if !scenario::is_long() {
        assert_documented(&rows);
    }
}
