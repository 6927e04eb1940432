//! The event lane: its contract, rule by rule, and who may finish an event.
//!
//! The contract is written out here a second time, in the words of the catalogue: what the schema makes is compared with
//! this, and not with itself.
//!
//! # Layout
//!
//! - `contract`: signatures and columns, and that a drift from them is named
//! - `rules`: what publishing, claiming and completing do; `refusals`: what they refuse; `keeping`: what stays
//! - `claims`: a claim that was lost is lost
//! - `crew`: the moves, and time that is moved

pub(super) mod claims;
mod contract;
pub(super) mod crew;
mod keeping;
mod refusals;
mod rules;

use super::evidence::{Evidence, Failure, Trial};
use crate::kit::scratch::Database;

/// Proof 23.
pub(super) async fn contract_holds(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    contract::is_in_the_catalogue(database, &mut trial).await?;
    rules::publishing(database, &mut trial).await?;
    rules::claiming(database, &mut trial).await?;
    rules::many_claimers(database, &mut trial).await?;
    rules::success(database, &mut trial).await?;
    rules::failure(database, &mut trial).await?;
    refusals::change_nothing(database, &mut trial).await?;
    keeping::errors(database, &mut trial).await?;
    keeping::events(database, &mut trial).await?;
    contract::drift_is_named(database, &mut trial).await?;
    Ok(trial.evidence())
}
