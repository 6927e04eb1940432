//! A private PostgreSQL over the installed programs: found, started, crashed, started again, and removed.
//!
//! It listens on the loopback address alone, trusts whoever reaches it there, and keeps everything in one temporary
//! folder. It knows nothing of Symphony's schema.
//!
//! # Layout
//!
//! - [`Binaries`]: which `initdb` and `postgres` to run
//! - [`Cluster`]: one server with its data, from start to removal
//! - `account`: the user that the server runs as, because it refuses to run as root
//! - `folder`: the temporary folder, and how the folders of dead owners are swept away
//! - `process`: the server as a process that neither outlives its owner nor surprises it

mod account;
mod binaries;
mod cluster;
mod folder;
mod process;

pub use binaries::{Binaries, FindError};
pub use cluster::{Cluster, Error, Options};
