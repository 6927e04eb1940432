//! Newtypes for lease tokens and worker ids, and a batch size that is always in range.
//!
//! The database checks the texts: nothing here checks or trims them.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

/// The fencing token of a lease, which a completion must present.
///
/// It is a credential, so `Debug` does not print it, and nothing serializes it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LeaseToken(pub(crate) Uuid);

impl fmt::Debug for LeaseToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LeaseToken(..)")
    }
}

impl From<Uuid> for LeaseToken {
    fn from(token: Uuid) -> Self {
        Self(token)
    }
}

/// The name under which a worker holds its leases. Each worker needs a different one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct WorkerId(String);

impl WorkerId {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<String> for WorkerId {
    fn from(name: String) -> Self {
        Self(name)
    }
}

impl From<&str> for WorkerId {
    fn from(name: &str) -> Self {
        Self(name.to_owned())
    }
}

impl<'a> tokio_postgres::types::FromSql<'a> for WorkerId {
    fn from_sql(
        of: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        String::from_sql(of, raw).map(Self)
    }

    tokio_postgres::types::accepts!(TEXT);
}

/// The maximum number of rows of one call: 1 to 1000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BatchSize(u16);

impl BatchSize {
    /// A single row.
    pub const ONE: Self = Self(1);
    /// The largest batch that the database allows.
    pub const MAX: Self = Self(1000);

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }
}

impl TryFrom<u16> for BatchSize {
    type Error = BatchSizeError;

    fn try_from(size: u16) -> Result<Self, Self::Error> {
        if (Self::ONE.0..=Self::MAX.0).contains(&size) { Ok(Self(size)) } else { Err(BatchSizeError) }
    }
}

impl FromStr for BatchSize {
    type Err = BatchSizeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse::<u16>().map_err(|_| BatchSizeError)?.try_into()
    }
}

/// A batch size out of range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a batch has from {} to {} rows", BatchSize::ONE.0, BatchSize::MAX.0)]
pub struct BatchSizeError;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_token_is_not_printed() {
        assert_eq!(format!("{:?}", LeaseToken(Uuid::max())), "LeaseToken(..)");
    }

    #[test]
    fn a_batch_has_from_one_to_a_thousand_rows() {
        for size in ["1", "1000"] {
            assert_eq!(size.parse::<BatchSize>().unwrap().get().to_string(), size);
        }
        for size in ["0", "1001", "-1", "many", "65537"] {
            assert_eq!(size.parse::<BatchSize>(), Err(BatchSizeError));
        }
    }
}
