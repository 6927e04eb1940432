//! Compares the committed metadata entries with the records of the second store.
//!
//! It compares lists and believes neither, and it does not know where they come from. What counts in a store is the end: one
//! record for each entity, of its latest version. An entry that was given up may have been stored all the same.

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
    /// What became of it.
    pub status: Status,
    /// Its metadata, as the database writes it.
    pub metadata: String,
}

/// A record of a second store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Its entity, as `type/id`.
    pub entity: String,
    /// The version that it has.
    pub version: i64,
    /// The entry that it came with.
    pub entry_id: String,
    /// The metadata that it has.
    pub metadata: String,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Finding {
    /// The business has committed something, and has no entry that says so.
    NotPublished {
        /// What it has committed.
        subject: String,
    },
    /// There is an entry about something that the business has never committed, or that another entry is about.
    NoSuchOrder {
        /// The entry.
        id: String,
    },
    /// The latest entry of an entity does not say what the business has.
    WrongMetadata {
        /// The entity.
        entity: String,
    },
    /// The entry has not ended.
    Unended {
        /// The entry.
        id: String,
        /// What it is instead.
        status: Status,
    },
    /// An entry of the entity was published, and there is no record of it.
    Missing {
        /// The entity.
        entity: String,
    },
    /// A later version was published than the one that is there.
    Outdated {
        /// The entity.
        entity: String,
        /// The version that is there.
        version: i64,
        /// The version that must be there.
        published: i64,
    },
    /// The record has a version of its entity, with the id or the metadata of something else.
    Differs {
        /// The entity.
        entity: String,
        /// The version.
        version: i64,
    },
    /// There is a record of an entity or of a version that was never committed, or not for this store.
    NeverCommitted {
        /// The entity.
        entity: String,
        /// The version.
        version: i64,
    },
    /// There is more than one record of the entity.
    Twice {
        /// The entity.
        entity: String,
    },
}

impl Finding {
    /// Whether a store lacks something that it should have.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::NotPublished { .. } | Self::Unended { .. } | Self::Missing { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublished { subject } => write!(f, "lost: {subject:?} was committed, and no entry says so"),
            Self::NoSuchOrder { id } => write!(f, "entry {id} is about something that was never committed"),
            Self::WrongMetadata { entity } => write!(f, "the latest entry of {entity:?} does not say what it is"),
            Self::Unended { id, status } => write!(f, "entry {id} has not ended: it is {status}"),
            Self::Missing { entity } => write!(f, "lost: {entity:?} was published and is missing"),
            Self::Outdated { entity, version, published } => {
                write!(f, "{entity:?} has version {version}, and version {published} was published")
            }
            Self::Differs { entity, version } => {
                write!(f, "{entity:?} has version {version}, and not what belongs to it")
            }
            Self::NeverCommitted { entity, version } => {
                write!(f, "{entity:?} is there with version {version}, which was never committed")
            }
            Self::Twice { entity } => write!(f, "{entity:?} is there more than once"),
        }
    }
}

/// What was found in one store.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Entries that were committed for it.
    pub entries: usize,
    /// Those of them that were published.
    pub published: usize,
    /// Those that were given up.
    pub dead: usize,
    /// Entities that the entries are about.
    pub entities: usize,
    /// Records that are there.
    pub records: usize,
    /// What must not be. Empty when the audit holds.
    pub findings: Vec<Finding>,
}

/// Compares the entries that were committed for a store with the records that are there: every entry has ended, every entity that was
/// published has one record, of the latest version and as its entry has it, and nothing else is there.
pub fn compare(entries: &[Entry], records: &[Record]) -> Report {
    let mut entities: BTreeMap<&str, BTreeMap<i64, &Entry>> = BTreeMap::new();
    for entry in entries {
        entities.entry(&entry.entity).or_default().insert(entry.version, entry);
    }
    let mut findings: Vec<Finding> = entries
        .iter()
        .filter(|entry| !entry.status.is_terminal())
        .map(|entry| Finding::Unended { id: entry.id.clone(), status: entry.status })
        .collect();
    let mut there: BTreeMap<&str, usize> = BTreeMap::new();
    for record in records {
        *there.entry(&record.entity).or_default() += 1;
        findings.extend(
            entities
                .get(record.entity.as_str())
                .map_or_else(|| Some(unexpected(record)), |versions| judge(record, versions)),
        );
    }
    let twice = there.iter().filter(|(_, records)| **records > 1);
    findings.extend(twice.map(|(entity, _)| Finding::Twice { entity: (*entity).to_owned() }));
    let published = entities.iter().filter(|(_, versions)| latest(versions).is_some());
    let missing = published.filter(|(entity, _)| !there.contains_key(*entity));
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

/// What is wrong with a record of an entity that has these versions, if anything is.
fn judge(record: &Record, versions: &BTreeMap<i64, &Entry>) -> Option<Finding> {
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
    fn the_latest_version_is_what_counts_and_what_was_given_up_may_be_there() {
        let published = [entry(1, Status::Published), entry(2, Status::Published)];
        let report = compare(&published, &[record(2)]);
        let expected = Report { entries: 2, published: 2, dead: 0, entities: 1, records: 1, findings: Vec::new() };
        assert_eq!(report, expected);
        let given_up = [entry(1, Status::Published), entry(2, Status::Dlq)];
        assert_eq!(compare(&given_up, &[record(1)]).findings, []);
        assert_eq!(compare(&given_up, &[record(2)]).findings, []);
        assert_eq!(compare(&[entry(1, Status::Dlq)], &[]).findings, []);
    }

    #[test]
    fn whatever_differs_is_found_and_named() {
        let entries = [entry(1, Status::Published), entry(2, Status::Published)];
        let finds = |records: &[Record]| compare(&entries, records).findings;
        let entity = || ENTITY.to_owned();
        assert_eq!(finds(&[]), [Finding::Missing { entity: entity() }]);
        assert_eq!(finds(&[record(1)]), [Finding::Outdated { entity: entity(), version: 1, published: 2 }]);
        assert_eq!(finds(&[record(3)]), [Finding::NeverCommitted { entity: entity(), version: 3 }]);
        assert_eq!(finds(&[record(2), record(2)]), [Finding::Twice { entity: entity() }]);
        let differs = || [Finding::Differs { entity: entity(), version: 2 }];
        assert_eq!(finds(&[Record { metadata: "{}".into(), ..record(2) }]), differs());
        assert_eq!(finds(&[Record { entry_id: "entry-1".into(), ..record(2) }]), differs());
        let unexpected = Record { entity: "document/2".into(), ..record(2) };
        let never = Finding::NeverCommitted { entity: "document/2".into(), version: 2 };
        assert_eq!(finds(&[record(2), unexpected]), [never]);
        for status in [Status::Pending, Status::Processing, Status::Failed] {
            let open = Finding::Unended { id: "entry-2".into(), status };
            assert_eq!(compare(&[entry(1, Status::Published), entry(2, status)], &[record(1)]).findings, [open]);
        }
    }
}
