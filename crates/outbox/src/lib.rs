//! What a producer links: Symphony's SQL functions with names and types.

mod ids;
mod words;

pub mod error;
pub mod payment;

pub use ids::{BatchSize, BatchSizeError, LeaseToken, OutboxId, WorkerId};
pub use words::UnknownWord;
