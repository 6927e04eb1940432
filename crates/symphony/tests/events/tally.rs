//! What was committed against what has arrived.

use std::collections::{BTreeMap, BTreeSet};

use crate::bus::Arrived;

/// Compares the two: every event has arrived, nothing else has, and without repeats those of an aggregate come in the order of their
/// numbers. Says how many repeats there were.
pub(crate) fn compare(committed: &[Arrived], arrived: &[Arrived]) -> usize {
    let expected: BTreeMap<i64, &str> = committed.iter().map(|event| (event.id, event.key.as_str())).collect();
    assert_eq!(expected.len(), committed.len(), "numbers were given twice");
    let (mut seen, mut last) = (BTreeSet::new(), BTreeMap::new());
    for event in arrived {
        let key = expected.get(&event.id).unwrap_or_else(|| panic!("{event:?} was never committed"));
        assert_eq!(*key, event.key, "{event:?} is of another aggregate");
        if seen.insert(event.id) {
            let before = last.insert(event.key.as_str(), event.id);
            assert!(before < Some(event.id), "{event:?} comes behind {before:?} of its aggregate");
        }
    }
    let missing: Vec<_> = expected.keys().filter(|id| !seen.contains(id)).collect();
    assert!(missing.is_empty(), "{} of {} are missing: {missing:?}", missing.len(), expected.len());
    arrived.len() - seen.len()
}

fn events(numbers: &[i64]) -> Vec<Arrived> {
    numbers.iter().map(|id| Arrived { id: *id, key: format!("order/{}", id % 2) }).collect()
}

#[test]
fn repeats_are_counted_and_the_order_is_that_of_the_first_time() {
    assert_eq!(compare(&events(&[1, 2, 3, 5]), &events(&[2, 1, 1, 3, 1, 5])), 2);
}

#[test]
#[should_panic(expected = "1 of 3 are missing: [2]")]
fn an_event_that_is_missing_is_found() {
    compare(&events(&[1, 2, 3]), &events(&[1, 3]));
}

#[test]
#[should_panic(expected = "comes behind Some(3)")]
fn an_event_that_was_overtaken_is_found() {
    compare(&events(&[1, 2, 3]), &events(&[2, 3, 1]));
}

#[test]
#[should_panic(expected = "was never committed")]
fn an_event_that_was_rolled_back_is_found() {
    compare(&events(&[1, 3]), &events(&[1, 2, 3]));
}
