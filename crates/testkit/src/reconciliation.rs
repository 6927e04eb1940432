//! Reconciliation: compares every payment of the outbox with the ledger of the bank.
//!
//! It reads the tables of the payment lane, not the views and functions that it checks, and the ledger lines of the
//! bank. Run it when no payment is in flight.
//!
//! ```no_run
//! # async fn f(owner: &mut tokio_postgres::Client, ledger: &str) -> Result<(), symphony_testkit::reconciliation::Error> {
//! use symphony_testkit::reconciliation;
//!
//! let outboxes = reconciliation::read(owner).await?;
//! let bank = reconciliation::executions(ledger)?; // GET /v1/ledger, or the bank's file
//! let report = reconciliation::compare(&outboxes, &bank, None);
//! assert!(report.holds(), "{report}");
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! - [`Outboxes`]: the outbox
//! - [`Execution`]: the ledger of the bank
//! - [`compare`]: both, payment by payment
//! - [`Report`]: findings and counts
//! - [`events`]: the same for events and a broker
//! - [`metadata`]: the same for metadata and a second store

mod bank;
mod comparison;
pub mod events;
pub mod metadata;
mod outboxes;
mod report;

pub use bank::{Execution, executions};
pub use comparison::compare;
pub use outboxes::{Attempt, Outbox, Outboxes, read};
pub use report::{Counts, Finding, Report, UnknownOutcome};

/// Why the records could not be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A database query failed. The login must be the owner of the schema or a superuser.
    #[error("the outbox could not be read")]
    Database(#[from] tokio_postgres::Error),
    /// The bank's ledger is damaged, or the text is not a ledger.
    #[error("line {line} is not a valid bank ledger entry")]
    Bank {
        /// The line number, from 1.
        line: usize,
        /// The parse error.
        source: serde_json::Error,
    },
}

#[cfg(test)]
mod tests;
