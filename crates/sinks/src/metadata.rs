//! Stores for metadata: each keeps the latest version of every entity's metadata in a second database.
//!
//! A store implements [`WireProtocol`](crate::connection_manager::WireProtocol) for one protocol, and compares versions
//! on the server. It knows nothing of claims, retries or routes.
//!
//! # Layout
//!
//! - `postgres`: a table; `redis`: hashes. Each is behind the feature of its name
//!
//! The HTTP store is in `http::store`, since it shares the HTTP client. [`registry`](crate::registry) says how to add a
//! store.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
