//! The interface of a metadata store: write the metadata of an entity, and never let an older version replace a newer one.
//!
//! A store knows its protocol and nothing of claims or retries. Writes of one entity may reach it in any order, twice, and
//! from several relayers at once; the version says which is the later, and it must be compared where the record is kept.

use crate::rail::BoxFuture;

/// What an entity looked like when an entry of the outbox was created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The entry: the same on every attempt.
    pub entry_id: String,
    /// The kind of entity.
    pub entity_type: String,
    /// Which of them.
    pub entity_id: String,
    /// Rises with every entry of the entity: microseconds since 1970, by the clock of the database.
    pub version: i64,
    /// Its metadata: JSON, as text.
    pub metadata: String,
}

/// How a write ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The store has it, durably as far as it promises; or had this very version already.
    Stored,
    /// The store holds a later version, and kept that. Nothing is left to be done.
    Superseded,
    /// The store refused this record: too large, not allowed. The same will happen again until the configuration changes.
    /// The text is for operators and holds nothing of the record.
    Refused(String),
    /// The store could not be reached, did not answer in time, or had trouble of its own. It may have the record.
    Failed(String),
}

/// A second store.
pub trait Store: Send + Sync + 'static {
    /// Writes a record unless a later one is there, and waits until the store has said so. Bounded in time by the store's own
    /// settings.
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written>;

    /// Closes its connections.
    fn close(&self) -> BoxFuture<'_, ()>;
}
