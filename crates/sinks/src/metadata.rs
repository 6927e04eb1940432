//! Second stores for metadata: what keeps a record of each entity, and never lets an earlier version win over a later one.
//!
//! Each knows one protocol, and has the version compared where the record is kept. None knows claims, retries or routes: those
//! are the engine's, which sees a [`Store`](symphony_relay::store::Store) and nothing else.
//!
//! # Layout
//!
//! - `postgres`: a table; `redis`: hashes. Each is behind a feature of its name
//!
//! Metadata over HTTP lives with the HTTP rail, whose line it shares.

#[cfg(feature = "postgres")]
pub(crate) mod postgres;
#[cfg(feature = "redis")]
pub(crate) mod redis;
