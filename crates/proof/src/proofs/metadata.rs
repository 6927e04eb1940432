//! The metadata lane: a status machine that cannot be broken, and who may move an entry.
//!
//! The arrows are taken from Rust and tried on the database, so that the two cannot differ.
//!
//! # Layout
//!
//! - `machine`: every pair of statuses, by every hand; `moves`: what each function takes, and from where; `ends`: what has ended
//! - `claims`: a claim that was lost is lost
//! - `crew`: the moves, and time that is moved

pub(super) mod claims;
pub(super) mod crew;
mod ends;
mod machine;
mod moves;

use super::evidence::{Evidence, Failure, Trial};
use crate::kit::scratch::Database;

/// Proof 24.
pub(super) async fn machine_holds(database: &Database) -> Result<Evidence, Failure> {
    let mut trial = Trial::default();
    machine::by_hand(database, &mut trial).await?;
    machine::beginnings(database, &mut trial).await?;
    moves::from_every_status(database, &mut trial).await?;
    moves::to_the_last_retry(database, &mut trial).await?;
    moves::refusals(database, &mut trial).await?;
    ends::do_not_change(database, &mut trial).await?;
    ends::the_rest_is_kept(database, &mut trial).await?;
    Ok(trial.evidence())
}
