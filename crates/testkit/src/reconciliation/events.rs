//! Compares the committed events with those found at their destination.
//!
//! It compares lists and believes neither, and it does not know where they come from. An event may have arrived more than once:
//! what counts is the first time.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

/// An event, committed or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its number.
    pub id: i64,
    /// Its aggregate, as `type/id`: the CloudEvents `partitionkey`.
    pub key: String,
}

/// Something that must not be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Finding {
    /// The business has committed something, and has no event that says so.
    NotPublished {
        /// What it has committed.
        subject: String,
    },
    /// There is an event about something that the business has never committed.
    NoSuchOrder {
        /// The event.
        id: i64,
    },
    /// It is committed, and was not completed.
    Unprocessed {
        /// The event.
        id: i64,
    },
    /// It is committed, and has not arrived.
    Missing {
        /// The event.
        id: i64,
    },
    /// It has arrived, and was not committed, or not for this place.
    NeverCommitted {
        /// The event.
        id: i64,
    },
    /// It has arrived under the name of another aggregate.
    WrongAggregate {
        /// The event.
        id: i64,
        /// Its aggregate.
        key: String,
        /// The one that it came under.
        received_key: String,
    },
    /// A later event of its aggregate has arrived first.
    Overtaken {
        /// The event.
        id: i64,
        /// Its aggregate.
        key: String,
        /// The later one.
        by: i64,
    },
}

impl Finding {
    /// Whether an event is missing at its destination.
    pub fn is_loss(&self) -> bool {
        matches!(self, Self::NotPublished { .. } | Self::Unprocessed { .. } | Self::Missing { .. })
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPublished { subject } => write!(f, "lost: {subject:?} was committed, and no event says so"),
            Self::NoSuchOrder { id } => write!(f, "event {id} is about something that was never committed"),
            Self::Unprocessed { id } => write!(f, "event {id} was not completed"),
            Self::Missing { id } => write!(f, "lost: event {id} was committed and is missing"),
            Self::NeverCommitted { id } => write!(f, "event {id} has arrived and was never committed"),
            Self::WrongAggregate { id, key, received_key } => {
                write!(f, "event {id} is of {key:?} and came as {received_key:?}")
            }
            Self::Overtaken { id, key, by } => write!(f, "event {id} of {key:?} has arrived after event {by}"),
        }
    }
}

/// What was found at one place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Events that were committed for it.
    pub committed: usize,
    /// Events that have arrived there, each counted once.
    pub arrived: usize,
    /// How often one arrived that was there already.
    pub repeats: usize,
    /// Aggregates whose order was looked at.
    pub aggregates: usize,
    /// What must not be. Empty when the audit holds.
    pub findings: Vec<Finding>,
}

/// Compares what was committed for a place with what has arrived there, in the order in which it was found: everything is there and nothing
/// else, and without repeats those of an aggregate come in the order of their numbers.
pub fn compare(committed: &[Event], arrived: &[Event]) -> Report {
    let keys: BTreeMap<i64, &str> = committed.iter().map(|event| (event.id, event.key.as_str())).collect();
    let (mut seen, mut highest) = (BTreeSet::new(), BTreeMap::new());
    let mut findings = Vec::new();
    for Event { id, key: received_key } in arrived {
        let (id, first) = (*id, seen.insert(*id));
        let Some(key) = keys.get(&id).copied() else {
            findings.push(Finding::NeverCommitted { id });
            continue;
        };
        if key != received_key {
            findings.push(Finding::WrongAggregate { id, key: key.to_owned(), received_key: received_key.clone() });
        }
        if !first {
            continue;
        }
        let last = highest.entry(key).or_insert(id);
        if id < *last {
            findings.push(Finding::Overtaken { id, key: key.to_owned(), by: *last });
        }
        *last = id.max(*last);
    }
    findings.extend(keys.keys().filter(|id| !seen.contains(id)).map(|id| Finding::Missing { id: *id }));
    Report {
        committed: keys.len(),
        arrived: seen.len(),
        repeats: arrived.len() - seen.len(),
        aggregates: highest.len(),
        findings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events(numbers: &[i64]) -> Vec<Event> {
        numbers.iter().map(|id| Event { id: *id, key: format!("order/{}", id % 2) }).collect()
    }

    #[test]
    fn repeats_are_counted_and_the_order_is_that_of_the_first_time() {
        let report = compare(&events(&[1, 2, 3, 5]), &events(&[2, 1, 1, 3, 1, 5]));
        let expected = Report { committed: 4, arrived: 4, repeats: 2, aggregates: 2, findings: Vec::new() };
        assert_eq!(report, expected);
    }

    #[test]
    fn whatever_differs_is_found_and_named() {
        let finds = |committed: &[i64], arrived: &[i64]| compare(&events(committed), &events(arrived)).findings;
        assert_eq!(finds(&[1, 2, 3], &[1, 3]), [Finding::Missing { id: 2 }]);
        assert_eq!(finds(&[1, 3], &[1, 2, 3]), [Finding::NeverCommitted { id: 2 }]);
        let overtaken = Finding::Overtaken { id: 1, key: "order/1".into(), by: 3 };
        assert_eq!(finds(&[1, 2, 3], &[2, 3, 1]), [overtaken]);
        let stray = [Event { id: 4, key: "order/7".into() }];
        let of_another = Finding::WrongAggregate { id: 4, key: "order/0".into(), received_key: "order/7".into() };
        assert_eq!(compare(&events(&[4]), &stray).findings, [of_another]);
    }
}
