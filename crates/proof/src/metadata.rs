//! The metadata lane: its status machine, and late completions.
//!
//! The allowed transitions come from the Rust type and are tried on the database, so that the two cannot differ.
//!
//! # Layout
//!
//! - `status_machine`: every pair of statuses, as every role; `transitions`: what each function does in each status;
//!   `terminal_status`: PUBLISHED and DLQ
//! - `claims`: a worker that lost its claim cannot complete
//! - `calls`: typed calls of the functions, and changed timestamps

pub(super) mod calls;
pub(super) mod claims;
mod status_machine;
mod terminal_status;
mod transitions;

use super::evidence::{Evidence, Failure, Recorder};
use symphony_testkit::test_database::Database;

/// Proof 24: `a_metadata_entry_makes_the_five_allowed_transitions_and_no_other`.
pub(super) async fn machine_holds(database: &Database) -> Result<Evidence, Failure> {
    let mut recorder = Recorder::default();
    status_machine::by_update(database, &mut recorder).await?;
    status_machine::initial_status(database, &mut recorder).await?;
    transitions::from_every_status(database, &mut recorder).await?;
    transitions::last_retry(database, &mut recorder).await?;
    transitions::refusals(database, &mut recorder).await?;
    terminal_status::is_immutable(database, &mut recorder).await?;
    terminal_status::content_is_immutable(database, &mut recorder).await?;
    Ok(recorder.finish())
}
