//! The metadata entry that a producer creates, its entity, and the SQL of both drivers.
//!
//! Blank texts and NUL characters are refused here. The database checks lengths and ranges.

use thiserror::Error;

use crate::Payload;

#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) const CREATE: &str = "select symphony.create_metadata_entry($1, $2, $3) as id";
#[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
pub(super) const CREATE_WITH_MAX_RETRIES: &str = "select symphony.create_metadata_entry($1, $2, $3, $4) as id";

/// Why an entity is invalid. No statement was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum InvalidEntity {
    /// The text is empty or only white space.
    #[error("{0} must not be blank")]
    Blank(&'static str),
    /// The text contains a NUL character, which PostgreSQL cannot store.
    #[error("{0} must not contain a NUL character")]
    Nul(&'static str),
}

fn checked(field: &'static str, text: impl Into<String>) -> Result<String, InvalidEntity> {
    let text = text.into();
    if text.trim().is_empty() {
        return Err(InvalidEntity::Blank(field));
    }
    if text.contains('\0') {
        return Err(InvalidEntity::Nul(field));
    }
    Ok(text)
}

/// The entity that an entry describes: its type and its id, neither blank.
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
    /// See [`InvalidEntity`].
    pub fn new(entity_type: impl Into<String>, entity_id: impl Into<String>) -> Result<Self, InvalidEntity> {
        Ok(Self { entity_type: checked("entity_type", entity_type)?, entity_id: checked("entity_id", entity_id)? })
    }

    /// For rows that the database returned, and so has checked.
    #[doc(hidden)]
    pub fn stored(entity_type: String, entity_id: String) -> Self {
        Self { entity_type, entity_id }
    }

    /// Its type, such as `document`.
    pub fn entity_type(&self) -> &str {
        &self.entity_type
    }

    /// Its id within that type.
    pub fn entity_id(&self) -> &str {
        &self.entity_id
    }
}

/// One version of an entity's metadata, for a second store.
///
/// ```
/// use serde_json::json;
/// use symphony_client::metadata::{Entity, Entry};
///
/// let entity = Entity::new("document", "doc-1")?;
/// let entry = Entry::new(entity, json!({ "title": "Contract" })).with_max_retries(10);
/// assert_eq!(entry.max_retries, Some(10));
/// # Ok::<(), symphony_client::metadata::InvalidEntity>(())
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// The entity.
    pub entity: Entity,
    /// Its metadata: any JSON.
    pub metadata: Payload,
    /// After how many failures the entry moves to the dead-letter queue, 1 to 100; none means the database's default.
    pub max_retries: Option<i32>,
}

impl Entry {
    /// An entry with the database's default of retries.
    pub fn new(entity: Entity, metadata: impl Into<Payload>) -> Self {
        Self { entity, metadata: metadata.into(), max_retries: None }
    }

    /// Sets [`max_retries`](Self::max_retries). The database refuses values outside 1 to 100.
    #[must_use]
    pub fn with_max_retries(self, max_retries: i32) -> Self {
        Self { max_retries: Some(max_retries), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_or_malformed_entity_is_refused_without_a_database() {
        for blank in ["", " ", "\n\t", "\u{a0}\u{3000}"] {
            assert_eq!(Entity::new(blank, "1"), Err(InvalidEntity::Blank("entity_type")), "{blank:?}");
            assert_eq!(Entity::new("document", blank), Err(InvalidEntity::Blank("entity_id")), "{blank:?}");
        }
        assert_eq!(Entity::new("document", "a\0b"), Err(InvalidEntity::Nul("entity_id")));
    }
}
