//! The audit: what the outbox says became of every payment, against what the bank says it has executed.
//!
//! It compares two lists and believes neither. It knows the tables of the payment lane from outside, not the views and
//! functions that it checks, and of the bank only the lines of its ledger. It decides nothing about time: give it a
//! system that has come to rest.
//!
//! ```no_run
//! # async fn f(owner: &mut tokio_postgres::Client, ledger: &str) -> Result<(), symphony_proof::kit::audit::Error> {
//! use symphony_proof::kit::audit;
//!
//! let books = audit::read(owner).await?;
//! let bank = audit::executions(ledger)?; // GET /v1/ledger, or the bank's file
//! let report = audit::compare(&books, &bank, None);
//! assert!(report.holds(), "{report}");
//! # Ok(())
//! # }
//! ```
//!
//! # Layout
//!
//! - [`Books`]: what the outbox says
//! - [`Execution`]: what the bank says
//! - [`compare`]: both, payment by payment
//! - [`Report`]: what was found, and the counts
//! - [`events`]: the same for events, with what somebody finds where they went
//! - [`metadata`]: the same for metadata, with what somebody finds in the second store

mod bank;
mod books;
mod comparison;
pub mod events;
pub mod metadata;
mod report;

pub use bank::{Execution, executions};
pub use books::{Attempt, Books, Outbox, read};
pub use comparison::compare;
pub use report::{Counts, Finding, Report, UnknownLetter};

/// Why there is nothing to compare.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The database did not answer. The login must be the owner of the schema or a superuser.
    #[error("the outbox could not be read")]
    Database(#[from] tokio_postgres::Error),
    /// The bank's ledger is damaged, or is not one.
    #[error("line {line} is not of a bank's ledger")]
    Bank {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        source: serde_json::Error,
    },
}

#[cfg(test)]
mod tests;
