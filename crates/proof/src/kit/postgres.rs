//! A private PostgreSQL over the installed programs: found, started, crashed, started again, and removed.
//!
//! It listens on the loopback address alone, trusts whoever reaches it there, and keeps everything in one temporary
//! folder. It knows nothing of Symphony's schema.
//!
//! # Layout
//!
//! - [`Binaries`]: which `initdb` and `postgres` to run
//! - [`Cluster`]: one server with its data, from start to removal

mod binaries;
mod cluster;

pub use binaries::{Binaries, FindError};
pub use cluster::{Cluster, Error, Options};
