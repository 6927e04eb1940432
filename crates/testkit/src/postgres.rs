//! A private PostgreSQL over the installed programs: found, started, crashed, started again, copied, and removed.
//!
//! It listens on the loopback address alone, trusts every local client, and keeps everything in one temporary
//! folder. It knows nothing of Symphony's schema.
//!
//! # Layout
//!
//! - [`Binaries`]: which `initdb` and `postgres` to run
//! - [`Cluster`]: one server with its data, from start to removal
//! - [`Standby`]: how another server follows one, until it is promoted
//! - `sessions`: ending them

mod binaries;
mod cluster;
pub(crate) mod sessions;

pub use binaries::{Binaries, FindError};
pub use cluster::{Cluster, Error, Options, Replication, Standby};
