//! The payment lane for its worker, its operators and its readers. Producers enqueue through `symphony-client`.
//!
//! Each function calls one SQL function or reads one view, in one round trip and without a named statement, so it works
//! behind a pooler in transaction mode. The database decides what is allowed, and in which order.

pub mod archive;
pub mod operator;
mod outcome;
mod rail;
pub mod reader;
pub mod reconciliation;
mod states;
pub mod worker;

pub use outcome::{
    AWAITING_CONFIRMATION, Completed, Completion, Lease, OUTCOME_UNKNOWN, Outcome, RailAnswer, Reason,
};
pub use rail::{Change, Rail, RailPolicy};
pub use states::{
    AttemptState, ConfirmationResult, ConfirmedOutcome, EventKind, OnEpochChange, OnFailure, OnUnknown,
    OperationKind, OrphanKind, OutboxState, OutboxStatus, Resolution,
};
pub use symphony_client::Payload;
