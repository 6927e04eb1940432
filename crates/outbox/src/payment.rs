//! The payment lane: instructions to pay, strictly sequenced per participant, each carried by a rail.
//!
//! Every function here is one call of one SQL function, or one read of one view, in one round trip without a
//! named statement, so that it works behind a pooler in transaction mode. What is allowed, and in which
//! order, is decided by the database.

mod instruction;
mod outcome;
mod rail;
mod states;

#[cfg(feature = "tokio-postgres")]
pub mod operator;
#[cfg(feature = "tokio-postgres")]
pub mod producer;
#[cfg(feature = "sqlx")]
pub mod producer_sqlx;
#[cfg(feature = "tokio-postgres")]
pub mod reading;
#[cfg(feature = "tokio-postgres")]
pub mod worker;

pub use crate::payload::Payload;
pub use instruction::{Enqueued, Instruction};
pub use outcome::{Completed, Completion, Lease, OUTCOME_UNKNOWN, Outcome, RailAnswer, Reason};
pub use rail::{Change, Rail, RailPolicy};
pub use states::{AttemptState, EventKind, OnUnknown, OperationKind, OutboxState, OutboxStatus, Resolution};
