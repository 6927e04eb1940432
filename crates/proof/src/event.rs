//! The event lane: its contract, rule by rule, and late completions.
//!
//! The contract is written here a second time, as the catalogue shows it, so that the schema is not compared with itself.
//!
//! # Layout
//!
//! - `contract`: signatures and columns, and that verify names every drift
//! - `rules`: what publishing, claiming and completing do; `refusals`: what they refuse; `immutability`: what cannot change
//! - `claims`: a worker that lost its claim cannot complete
//! - `calls`: typed calls of the functions, and changed timestamps

pub(super) mod calls;
pub(super) mod claims;
mod contract;
mod immutability;
mod refusals;
mod rules;

use super::evidence::{Evidence, Failure, Recorder};
use symphony_testkit::test_database::Database;

/// Proof 23: `the_event_contract_holds_rule_by_rule_and_drift_is_named`.
pub(super) async fn contract_holds(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    contract::is_in_the_catalogue(database, &mut recorder).await?;
    rules::publishing(database, &mut recorder).await?;
    rules::claiming(database, &mut recorder).await?;
    rules::many_claimers(database, &mut recorder).await?;
    rules::success(database, &mut recorder).await?;
    rules::failure(database, &mut recorder).await?;
    refusals::change_nothing(database, &mut recorder).await?;
    immutability::errors(database, &mut recorder).await?;
    immutability::events(database, &mut recorder).await?;
    contract::drift_is_named(database, &mut recorder).await?;
    Ok(recorder.finish())
}
