//! Compares the committed events with those found at their destination.
//!
//! It compares two lists, whatever their source. An event may arrive more than once; only its first arrival counts.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::Serialize;

/// An event, committed or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Its id.
    pub id: i64,
    /// Its aggregate, as `type/id`: the CloudEvents `partitionkey`.
    pub key: String,
}

/// A violation found by the audit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "finding", rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Finding {
    /// The producer committed an order without its event.
    NotPublished {
        /// The order.
        subject: String,
    },
    /// The event refers to an order that the producer never committed.
    NoSuchOrder {
        /// The event id.
        id: i64,
    },
    /// The event was committed but never completed.
    Unprocessed {
        /// The event id.
        id: i64,
    },
    /// The event was committed but never arrived.
    Missing {
        /// The event id.
        id: i64,
    },
    /// The event arrived but was never committed, or not for this destination.
    NeverCommitted {
        /// The event id.
        id: i64,
    },
    /// The event arrived with the key of another aggregate.
    WrongAggregate {
        /// The event id.
        id: i64,
        /// Its aggregate.
        key: String,
        /// The aggregate in the received message.
        received_key: String,
    },
    /// The event arrived after a later event of its aggregate.
    OutOfOrder {
        /// The event id.
        id: i64,
        /// Its aggregate.
        key: String,
        /// The id of the later event.
        after: i64,
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
            Self::NotPublished { subject } => write!(f, "lost: {subject:?} was committed without an event"),
            Self::NoSuchOrder { id } => write!(f, "event {id} refers to an order that was never committed"),
            Self::Unprocessed { id } => write!(f, "event {id} was not completed"),
            Self::Missing { id } => write!(f, "lost: event {id} was committed and did not arrive"),
            Self::NeverCommitted { id } => write!(f, "event {id} arrived and was never committed"),
            Self::WrongAggregate { id, key, received_key } => {
                write!(f, "event {id} belongs to {key:?} and arrived with key {received_key:?}")
            }
            Self::OutOfOrder { id, key, after } => write!(f, "event {id} of {key:?} arrived after event {after}"),
        }
    }
}

/// The result of an audit of one destination.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Events that were committed for it.
    pub committed: usize,
    /// Distinct events that arrived.
    pub arrived: usize,
    /// Duplicate arrivals.
    pub repeats: usize,
    /// Aggregates whose order was checked.
    pub aggregates: usize,
    /// The violations. Empty when the audit passes.
    pub findings: Vec<Finding>,
}

/// Compares the events that were committed for a destination with those that arrived, in arrival order.
///
/// Every committed event must arrive, and no other. First arrivals of an aggregate must be in the order of their ids.
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
            findings.push(Finding::OutOfOrder { id, key: key.to_owned(), after: *last });
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
    fn duplicates_are_counted_and_only_first_arrivals_decide_the_order() {
        let report = compare(&events(&[1, 2, 3, 5]), &events(&[2, 1, 1, 3, 1, 5]));
        let expected = Report { committed: 4, arrived: 4, repeats: 2, aggregates: 2, findings: Vec::new() };
        assert_eq!(report, expected);
    }

    #[test]
    fn every_difference_has_its_finding() {
        let finds = |committed: &[i64], arrived: &[i64]| compare(&events(committed), &events(arrived)).findings;
        assert_eq!(finds(&[1, 2, 3], &[1, 3]), [Finding::Missing { id: 2 }]);
        assert_eq!(finds(&[1, 3], &[1, 2, 3]), [Finding::NeverCommitted { id: 2 }]);
        let out_of_order = Finding::OutOfOrder { id: 1, key: "order/1".into(), after: 3 };
        assert_eq!(finds(&[1, 2, 3], &[2, 3, 1]), [out_of_order]);
        let arrived = [Event { id: 4, key: "order/7".into() }];
        let wrong = Finding::WrongAggregate { id: 4, key: "order/0".into(), received_key: "order/7".into() };
        assert_eq!(compare(&events(&[4]), &arrived).findings, [wrong]);
    }
}
