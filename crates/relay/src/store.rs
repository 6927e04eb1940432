//! The interface of a metadata store: implement [`Store`] to write entity metadata to a database of your choice.
//!
//! A store knows its protocol. It knows nothing about claims or retries. Writes of one entity may arrive out of
//! order, twice, and from several relayers at once. So the store must compare [`Record::version`] atomically with the
//! write: an older version must never replace a newer one.
//!
//! # Example
//!
//! ```
//! use std::collections::BTreeMap;
//! use std::sync::{Mutex, PoisonError};
//!
//! use symphony_relay::rail::BoxFuture;
//! use symphony_relay::store::{Record, Store, Written};
//!
//! /// A store in memory, which keeps the newest version of each entity.
//! #[derive(Default)]
//! struct MemoryStore {
//!     entities: Mutex<BTreeMap<(String, String), Record>>,
//! }
//!
//! impl Store for MemoryStore {
//!     fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written> {
//!         Box::pin(async move {
//!             let mut entities = self.entities.lock().unwrap_or_else(PoisonError::into_inner);
//!             let entity = (record.entity_type.clone(), record.entity_id.clone());
//!             if entities.get(&entity).is_some_and(|stored| stored.version > record.version) {
//!                 return Written::Superseded;
//!             }
//!             entities.insert(entity, record.clone());
//!             Written::Stored
//!         })
//!     }
//!
//!     fn close(&self) -> BoxFuture<'_, ()> {
//!         Box::pin(async {})
//!     }
//! }
//! ```

use crate::rail::BoxFuture;

/// One version of the metadata of an entity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// The id of the metadata entry: the same on every attempt.
    pub entry_id: String,
    /// The type of the entity.
    pub entity_type: String,
    /// The id of the entity.
    pub entity_id: String,
    /// The version, which rises with every entry of the entity: microseconds since 1970, by the clock of the database.
    pub version: i64,
    /// The metadata: JSON text.
    pub metadata: String,
}

/// The result of a write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Written {
    /// The store has this version, as durably as it promises, or had it already.
    Stored,
    /// The store has a newer version and kept it. The entry is done.
    Superseded,
    /// The store refused this record: too large, not allowed. A retry is refused too until the configuration changes.
    /// The text is for operators and contains no data of the record.
    Refused(String),
    /// The store is not reachable, did not answer in time, or failed. It may have the record. Counts against the
    /// circuit breaker; the text is for operators.
    Failed(String),
}

/// A metadata store. See the [module](self) for an example.
pub trait Store: Send + Sync + 'static {
    /// Writes a record unless the store has a newer version, and waits for the store's answer. The store enforces its
    /// own timeout.
    fn write<'a>(&'a self, record: &'a Record) -> BoxFuture<'a, Written>;

    /// Closes the connections.
    fn close(&self) -> BoxFuture<'_, ()>;
}
