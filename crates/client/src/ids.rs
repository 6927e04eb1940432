//! The ids that the database assigns to outbox rows, one type per lane.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// The id of a payment's outbox row: a UUIDv7, so ids sort by the time of their enqueue, not by dispatch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct OutboxId(pub Uuid);

impl fmt::Debug for OutboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OutboxId({})", self.0)
    }
}

impl fmt::Display for OutboxId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for OutboxId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

impl From<Uuid> for OutboxId {
    fn from(id: Uuid) -> Self {
        Self(id)
    }
}

#[cfg(feature = "tokio-postgres")]
impl<'a> tokio_postgres::types::FromSql<'a> for OutboxId {
    fn from_sql(
        of: &tokio_postgres::types::Type,
        raw: &'a [u8],
    ) -> Result<Self, Box<dyn std::error::Error + Sync + Send>> {
        Uuid::from_sql(of, raw).map(Self)
    }

    tokio_postgres::types::accepts!(UUID);
}

/// The number of an event, which is its deduplication key at a broker. Numbers are not in the order of commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct EventId(pub i64);

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for EventId {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

/// The id of a metadata entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
#[cfg_attr(feature = "json-schema", derive(schemars::JsonSchema))]
pub struct EntryId(pub Uuid);

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for EntryId {
    type Err = uuid::Error;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        text.parse().map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_reads_what_it_prints() {
        assert_eq!(OutboxId(Uuid::max()).to_string().parse(), Ok(OutboxId(Uuid::max())));
        assert_eq!(EntryId(Uuid::max()).to_string().parse(), Ok(EntryId(Uuid::max())));
        assert_eq!(EventId(42).to_string().parse(), Ok(EventId(42)));
    }
}
