//! Compares the committed metadata entries with the records of the second store.
//!
//! It compares two lists, whatever their source. A store must have one record per entity, of its latest published
//! version. A dead-lettered entry may have been stored as well.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use symphony_db::metadata::Status;

/// An entry that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its entity, as `type/id`.
    pub entity: String,
    /// Its version.
    pub version: i64,
    /// Its status.
    pub status: Status,
    /// Its metadata, as PostgreSQL prints it.
    pub metadata: String,
}

/// A record of a second store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its entity, as `type/id`.
    pub entity: String,
    /// Its version.
    pub version: i64,
    /// The id of the entry that wrote it.
    pub entry_id: String,
    /// Its metadata.
    pub metadata: String,
}

/// A violation found by the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Finding {
    /// The producer committed an order without its entry.
    NotPublished {
        /// The order.
        subject: String,
    },
    /// The entry refers to an order that the producer never committed, or that another entry has.
    NoSuchOrder {
        /// The entry id.
        id: String,
    },
    /// The latest entry of an entity differs from the producer's own row.
    WrongMetadata {
        /// The entity.
        entity: String,
    },
    /// The entry is not in a terminal state.
    NotEnded {
        /// The entry id.
        id: String,
        /// Its status.
        status: Status,
    },
    /// An entry of the entity was published, but the store has no record of it.
    Missing {
        /// The entity.
        entity: String,
    },
    /// The store has an earlier version than the last one published.
    Outdated {
        /// The entity.
        entity: String,
        /// The version in the store.
        version: i64,
        /// The last published version.
        published: i64,
    },
    /// The record has another entry id or other metadata than the entry of its version.
    Differs {
        /// The entity.
        entity: String,
        /// The version.
        version: i64,
    },
    /// The store has an entity or a version that was never committed, or not for this store.
    NeverCommitted {
        /// The entity.
        entity: String,
        /// The version.
        version: i64,
    },
    /// The store has more than one record of the entity.
    DuplicateRecord {
        /// The entity.
        entity: String,
    },
}

impl Finding {
    /// Whether an entry or a record was lost.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::NotPublished { .. } | Self::NotEnded { .. } | Self::Missing { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublished { subject } => write!(f, "lost: {subject:?} was committed without an entry"),
            Self::NoSuchOrder { id } => write!(f, "entry {id} refers to an order that was never committed"),
            Self::WrongMetadata { entity } => {
                write!(f, "the latest entry of {entity:?} differs from the producer's row")
            }
            Self::NotEnded { id, status } => write!(f, "entry {id} has not ended: it is {status}"),
            Self::Missing { entity } => {
                write!(f, "lost: {entity:?} was published and the store has no record of it")
            }
            Self::Outdated { entity, version, published } => {
                write!(f, "{entity:?} has version {version}, and version {published} was published")
            }
            Self::Differs { entity, version } => {
                write!(f, "{entity:?} has version {version} with another entry id or other metadata")
            }
            Self::NeverCommitted { entity, version } => {
                write!(f, "{entity:?} has version {version}, which was never committed")
            }
            Self::DuplicateRecord { entity } => write!(f, "{entity:?} has more than one record"),
        }
    }
}

/// The result of an audit of one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Entries that were committed for it.
    pub entries: usize,
    /// Entries that were published.
    pub published: usize,
    /// Entries in the dead-letter queue.
    pub dead: usize,
    /// Distinct entities of the entries.
    pub entities: usize,
    /// Records in the store.
    pub records: usize,
    /// The violations. Empty when the audit passes.
    pub findings: Vec<Finding>,
}

/// Compares the entries that were committed for a store with its records.
///
/// Every entry must have ended. Every published entity must have exactly one record, equal to its latest published
/// entry. The store must have no other record.
pub fn compare(entries: &[Entry], records: &[Record]) -> Report {
    let mut entities: BTreeMap<&str, BTreeMap<i64, &Entry>> = BTreeMap::new();
    for entry in entries {
        entities.entry(&entry.entity).or_default().insert(entry.version, entry);
    }
    let mut findings: Vec<Finding> = entries
        .iter()
        .filter(|entry| !entry.status.is_terminal())
        .map(|entry| Finding::NotEnded { id: entry.id.clone(), status: entry.status })
        .collect();
    let mut records_per_entity: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records {
        *records_per_entity.entry(&record.entity).or_default() += 1;
        findings.extend(
            entities
                .get(record.entity.as_str())
                .map_or_else(|| Some(unexpected(record)), |versions| check(record, versions)),
        );
    }
    let duplicates = records_per_entity.iter().filter(|(_, records)| **records > 1);
    findings.extend(duplicates.map(|(entity, _)| Finding::DuplicateRecord { entity: (*entity).to_owned() }));
    let published = entities.iter().filter(|(_, versions)| latest(versions).is_some());
    let missing = published.filter(|(entity, _)| !records_per_entity.contains_key(*entity));
    findings.extend(missing.map(|(entity, _)| Finding::Missing { entity: (*entity).to_owned() }));
    let count = |status| entries.iter().filter(|entry| entry.status == status).count();
    Report {
        entries: entries.len(),
        published: count(Status::Published),
        dead: count(Status::Dlq),
        entities: entities.len(),
        records: records.len(),
        findings,
    }
}

/// The latest version that was published.
fn latest(versions: &BTreeMap<i64, &Entry>) -> Option<i64> {
    versions.iter().rev().find(|(_, entry)| entry.status == Status::Published).map(|(version, _)| *version)
}

fn unexpected(record: &Record) -> Finding {
    Finding::NeverCommitted { entity: record.entity.clone(), version: record.version }
}

/// Checks a record against the entries of its entity, by version.
fn check(record: &Record, versions: &BTreeMap<i64, &Entry>) -> Option<Finding> {
    let (entity, version) = (record.entity.clone(), record.version);
    let Some(entry) = versions.get(&version) else { return Some(unexpected(record)) };
    if (&entry.id, &entry.metadata) != (&record.entry_id, &record.metadata) {
        return Some(Finding::Differs { entity, version });
    }
    let published = latest(versions).filter(|published| *published > version)?;
    Some(Finding::Outdated { entity, version, published })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENTITY: &str = "document/1";

    fn entry(version: i64, status: Status) -> Entry {
        let (id, metadata) = (format!("entry-{version}"), format!("{{\"v\": {version}}}"));
        Entry { id, entity: ENTITY.into(), version, status, metadata }
    }

    fn record(version: i64) -> Record {
        let Entry { id, entity, metadata, .. } = entry(version, Status::Published);
        Record { entity, version, entry_id: id, metadata }
    }

    #[test]
    fn only_the_latest_version_counts_and_a_dead_lettered_entry_may_be_stored() {
        let published = [entry(1, Status::Published), entry(2, Status::Published)];
        let report = compare(&published, &[record(2)]);
        let expected = Report { entries: 2, published: 2, dead: 0, entities: 1, records: 1, findings: Vec::new() };
        assert_eq!(report, expected);
        let dead_lettered = [entry(1, Status::Published), entry(2, Status::Dlq)];
        assert_eq!(compare(&dead_lettered, &[record(1)]).findings, []);
        assert_eq!(compare(&dead_lettered, &[record(2)]).findings, []);
        assert_eq!(compare(&[entry(1, Status::Dlq)], &[]).findings, []);
    }

    #[test]
    fn every_difference_has_its_finding() {
        let entries = [entry(1, Status::Published), entry(2, Status::Published)];
        let finds = |records: &[Record]| compare(&entries, records).findings;
        let entity = || ENTITY.to_owned();
        assert_eq!(finds(&[]), [Finding::Missing { entity: entity() }]);
        assert_eq!(finds(&[record(1)]), [Finding::Outdated { entity: entity(), version: 1, published: 2 }]);
        assert_eq!(finds(&[record(3)]), [Finding::NeverCommitted { entity: entity(), version: 3 }]);
        assert_eq!(finds(&[record(2), record(2)]), [Finding::DuplicateRecord { entity: entity() }]);
        let differs = || [Finding::Differs { entity: entity(), version: 2 }];
        assert_eq!(finds(&[Record { metadata: "{}".into(), ..record(2) }]), differs());
        assert_eq!(finds(&[Record { entry_id: "entry-1".into(), ..record(2) }]), differs());
        let unexpected = Record { entity: "document/2".into(), ..record(2) };
        let never = Finding::NeverCommitted { entity: "document/2".into(), version: 2 };
        assert_eq!(finds(&[record(2), unexpected]), [never]);
        for status in [Status::Pending, Status::Processing, Status::Failed] {
            let open = Finding::NotEnded { id: "entry-2".into(), status };
            assert_eq!(compare(&[entry(1, Status::Published), entry(2, status)], &[record(1)]).findings, [open]);
        }
    }
}
