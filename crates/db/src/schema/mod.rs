//! Installs the schema of this build, and verifies that a database matches it.
//!
//! The SQL is in the folder `schema/` of the repository and is compiled in. This module decides the order of its files,
//! and whether a database matches them. It contains no rule of any lane.
//!
//! # Layout
//! - `files`: the files of each lane, in install order.
//! - [`script`](mod@script): the script that installs or upgrades, which a DBA can also read and run.
//! - [`install`](mod@install): runs the script.
//! - [`guard`](mod@guard): refuses a database in which another owner's code would run with our privileges.
//! - [`lock`]: the locks of an install and a verification, with timeouts that name the holder.
//! - [`migrations`]: the migrations that the database recorded.
//! - [`catalogue`]: the facts about the installed objects, expected and found.
//! - [`owner`]: makes a session act as the owner, for DDL that no function can run.
//! - [`verify`](mod@verify): reports every difference between the two.

pub mod catalogue;
mod files;
pub mod guard;
pub mod install;
pub mod lock;
pub mod migrations;
pub mod owner;
pub mod script;
pub mod verify;

use std::{fmt, str::FromStr};

pub use guard::guard;
pub use install::install;
pub use script::script;
pub use verify::verify;

/// The version of the schema that this build installs. A build refuses a database with a higher one.
pub const VERSION: i32 = 1;

/// One of the three outboxes, which can be installed without the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Lane {
    /// Payment instructions, to rails.
    Payment,
    /// Domain events, to brokers.
    Event,
    /// Metadata of entities, to a second store.
    Metadata,
}

impl Lane {
    /// Every lane that this build can install.
    pub const ALL: [Self; 3] = [Self::Payment, Self::Event, Self::Metadata];

    /// The name used on the command line and in the database.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Payment => "payment",
            Self::Event => "event",
            Self::Metadata => "metadata",
        }
    }
}

impl fmt::Display for Lane {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Lane {
    type Err = UnknownLane;

    fn from_str(name: &str) -> Result<Self, UnknownLane> {
        Self::ALL.into_iter().find(|lane| lane.name() == name).ok_or_else(|| UnknownLane(name.to_owned()))
    }
}

/// A name that is no lane.
#[derive(Debug, thiserror::Error)]
#[error("there is no lane {0:?}; this build has: payment, event, metadata")]
pub struct UnknownLane(String);
