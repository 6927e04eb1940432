//! The schema that this build carries: installing it, and comparing a database with it.
//!
//! The SQL is in the folder `schema/` of the repository and is compiled in. This module decides in which
//! order its files run and whether a database is what they make. It knows no rule of any lane.
//!
//! # Layout
//! - [`files`]: the files of each lane, in install order.
//! - [`script`]: the one script that installs or upgrades, for us to run or for a DBA to read.
//! - [`install`]: runs it.
//! - [`guard`]: refuses a database in which a stranger's code would run with our rights.
//! - [`lock`]: what an install and a verification wait for, how long, and who is named when it takes longer.
//! - [`migrations`]: which migrations the database says it had.
//! - [`catalogue`]: the facts that the script leaves behind, expected and found.
//! - [`verify`]: names every difference between the two.

pub mod catalogue;
mod files;
pub mod guard;
pub mod install;
pub mod lock;
pub mod migrations;
pub mod script;
pub mod verify;

use std::{fmt, str::FromStr};

pub use guard::guard;
pub use install::install;
pub use script::script;
pub use verify::verify;

/// The version of the schema that this build installs. A build refuses a database with a higher one.
pub const VERSION: i32 = 1;

/// One outbox contract that can be installed without the others.
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

/// There is no lane of that name.
#[derive(Debug, thiserror::Error)]
#[error("there is no lane {0:?}; this build has: payment, event, metadata")]
pub struct UnknownLane(String);
