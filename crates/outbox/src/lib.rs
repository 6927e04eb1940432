//! What a producer links: typed calls of Symphony's SQL functions, in the caller's own transaction.
#[cfg(feature = "admin")]
pub mod connect;
#[cfg(feature = "admin")]
pub mod schema;
