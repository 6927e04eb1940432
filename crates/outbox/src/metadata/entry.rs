//! What is said about an entity, checked before the database is asked: nothing blank, nothing that it could not hold.
//!
//! How long a text may be is for the database to say.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use uuid::Uuid;

use crate::Payload;

/// One entry.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) const CREATE: &str = "select symphony.create_metadata_entry($1, $2, $3) as id";
/// One entry whose retries are bounded by the caller.
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) const CREATE_BOUNDED: &str = "select symphony.create_metadata_entry($1, $2, $3, $4) as id";

/// What cannot be asked at all. The database was not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Invalid {
    /// Nothing but blanks.
    #[error("{0} must not be blank")]
    Blank(&'static str),
    /// A NUL character, which no text of PostgreSQL can hold.
    #[error("{0} must not have a NUL character")]
    Nul(&'static str),
    /// Not a UUID.
    #[error("the id of an entry must be a UUID")]
    Id,
}

fn checked(what: &'static str, text: impl Into<String>) -> Result<String, Invalid> {
    let text = text.into();
    if text.trim().is_empty() {
        return Err(Invalid::Blank(what));
    }
    if text.contains('\0') {
        return Err(Invalid::Nul(what));
    }
    Ok(text)
}

/// The id of an entry.
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
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        text.parse().map(Self).map_err(|_| Invalid::Id)
    }
}

/// An entity: its type and its id, neither of them blank.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Entity {
    entity_type: String,
    entity_id: String,
}

impl Entity {
    /// The entity of this type and id.
    ///
    /// # Errors
    ///
    /// Where one of them is blank or cannot be held by the database.
    pub fn new(entity_type: impl Into<String>, entity_id: impl Into<String>) -> Result<Self, Invalid> {
        Ok(Self { entity_type: checked("entity_type", entity_type)?, entity_id: checked("entity_id", entity_id)? })
    }

    /// One that the database has, and so has checked.
    #[cfg(feature = "tokio-postgres")]
    pub(super) fn stored(entity_type: String, entity_id: String) -> Self {
        Self { entity_type, entity_id }
    }

    /// What kind of entity it is.
    pub fn entity_type(&self) -> &str {
        &self.entity_type
    }

    /// Which one of that kind.
    pub fn entity_id(&self) -> &str {
        &self.entity_id
    }
}

/// What a second store is to hold about an entity.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The entity.
    pub entity: Entity,
    /// Its metadata: any JSON.
    pub metadata: Payload,
    /// Failures after which it is not tried again, 1 to 100; the database's default unless given.
    pub max_retries: Option<i32>,
}

/// Why an entry failed or is given up, in words. The database cleans it of personal data.
#[derive(Clone, PartialEq, Eq)]
pub struct Reason(String);

impl Reason {
    /// These words.
    ///
    /// # Errors
    ///
    /// Where they say nothing, or cannot be held by the database.
    pub fn new(words: impl Into<String>) -> Result<Self, Invalid> {
        checked("the reason", words).map(Self)
    }

    /// The words.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Without the words: they may hold what must not be logged until the database has cleaned them.
impl fmt::Debug for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reason({} bytes)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_blank_or_malformed_is_refused_without_a_database() {
        for blank in ["", " ", "\n\t", "\u{a0}\u{3000}"] {
            assert_eq!(Entity::new(blank, "1"), Err(Invalid::Blank("entity_type")), "{blank:?}");
            assert_eq!(Entity::new("document", blank), Err(Invalid::Blank("entity_id")), "{blank:?}");
            assert_eq!(Reason::new(blank), Err(Invalid::Blank("the reason")), "{blank:?}");
        }
        assert_eq!(Entity::new("document", "a\0b"), Err(Invalid::Nul("entity_id")));
        assert_eq!(Reason::new("a\0b"), Err(Invalid::Nul("the reason")));
        for id in
            ["", "1", "not a uuid", "0190c0de-0000-7000-8000-00000000000", "0190c0de-0000-7000-8000-00000000000g"]
        {
            assert_eq!(id.parse::<EntryId>(), Err(Invalid::Id), "{id:?}");
        }
    }

    #[test]
    fn a_reason_is_not_printed() {
        assert_eq!(format!("{:?}", Reason::new("ann@example.org").unwrap()), "Reason(15 bytes)");
    }

    #[test]
    fn an_entry_id_reads_what_it_prints() {
        assert_eq!(EntryId(Uuid::max()).to_string().parse(), Ok(EntryId(Uuid::max())));
    }
}
