//! A private PostgreSQL server from installed binaries: start, crash, restart, replicate, upgrade and remove it.
//!
//! It listens on the loopback address only, trusts every local client, and keeps everything in one temporary folder. It
//! is independent of Symphony's schema.
//!
//! # Layout
//!
//! - [`Binaries`]: finds `initdb` and `postgres`
//! - [`Cluster`]: one server with its data
//! - [`Standby`]: a streaming replica, which can be promoted
//! - `sessions`: terminates sessions

mod binaries;
mod cluster;
pub(crate) mod sessions;

pub use binaries::{Binaries, FindError};
pub use cluster::{Cluster, Error, Options, Replication, Standby};
