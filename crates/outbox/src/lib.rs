//! What a producer links: Symphony's SQL functions with names and types.

mod ids;
mod words;

#[cfg(feature = "admin")]
pub mod connect;
pub mod error;
pub mod payment;
#[cfg(feature = "admin")]
pub mod schema;

pub use ids::{BatchSize, BatchSizeError, LeaseToken, OutboxId, WorkerId};
pub use words::UnknownWord;
