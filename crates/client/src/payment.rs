//! The payment lane: enqueue payments, numbered per participant, each for one rail; learn their outcome, and cancel them.
//!
//! Each function calls one SQL function, in one round trip and without a named statement, so it works behind a pooler
//! in transaction mode. The database decides what is allowed.

mod instruction;
mod outcome;
#[cfg(feature = "sqlx")]
pub mod sqlx;
#[cfg(feature = "sqlx")]
mod timestamptz;
#[cfg(feature = "tokio-postgres")]
pub mod tokio_postgres;

pub use instruction::{Enqueued, Instruction};
pub use outcome::{Cancelled, PaymentOutcome, PaymentState, UnknownState};
