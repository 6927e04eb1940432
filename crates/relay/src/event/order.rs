//! In which order the events of one aggregate leave this process: by their numbers, one at a time.
//!
//! Each event that is claimed takes its place behind the last one of its aggregate that this process still holds, and
//! comes when that one is done, however it went. Nothing here knows of other processes: for them the database is asked.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// What is promised about the order within an aggregate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// Events that this process holds leave by number, one at a time. One that failed is overtaken.
    Held,
    /// No event leaves while an earlier one of its aggregate is unprocessed, whoever holds that.
    Aggregate,
}

/// An aggregate: its type and its id.
type Aggregate = (String, String);

/// The last event of each aggregate that this process holds.
#[derive(Clone, Debug, Default)]
pub(super) struct Queues(Arc<Mutex<HashMap<Aggregate, Last>>>);

#[derive(Debug)]
struct Last {
    /// Closed when that event is done.
    done: watch::Receiver<()>,
    ticket: u64,
}

/// The place of an event in the queue of its aggregate. Dropped, it lets the next one come.
#[derive(Debug)]
pub(super) struct Place {
    queues: Queues,
    aggregate: Aggregate,
    ticket: u64,
    before: Option<watch::Receiver<()>>,
    _held: watch::Sender<()>,
}

impl Queues {
    /// Takes the place behind the last event of this aggregate. Call it in the order of the numbers.
    pub(super) fn stand(&self, aggregate_type: &str, aggregate_id: &str) -> Place {
        let aggregate = (aggregate_type.to_owned(), aggregate_id.to_owned());
        let (held, done) = watch::channel(());
        // Nothing that holds this lock can panic half-way.
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = queues.get(&aggregate).map_or(0, |last| last.ticket + 1);
        let before = queues.insert(aggregate.clone(), Last { done, ticket }).map(|last| last.done);
        Place { queues: self.clone(), aggregate, ticket, before, _held: held }
    }
}

impl Place {
    /// Waits until the one before is done.
    pub(super) async fn come(&mut self) {
        if let Some(mut before) = self.before.take() {
            while before.changed().await.is_ok() {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.queues.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.get(&self.aggregate).is_some_and(|last| last.ticket == self.ticket) {
            queues.remove(&self.aggregate);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn waits(place: &mut Place) -> bool {
        let before = place.before.clone();
        let waits = timeout(Duration::from_secs(1), place.come()).await.is_err();
        place.before = place.before.take().or(before.filter(|_| waits));
        waits
    }

    #[tokio::test(start_paused = true)]
    async fn one_after_the_other_and_other_aggregates_are_not_held_up() {
        let queues = Queues::default();
        let mut first = queues.stand("order", "1");
        let mut second = queues.stand("order", "1");
        let mut third = queues.stand("order", "1");
        let mut other = queues.stand("order", "2");
        assert!(!waits(&mut first).await);
        assert!(!waits(&mut other).await);
        assert!(waits(&mut second).await);
        drop(first);
        assert!(!waits(&mut second).await);
        assert!(waits(&mut third).await);
        // One that is given up does not stop the next.
        drop(second);
        assert!(!waits(&mut third).await);
        drop(third);
        drop(other);
        assert!(queues.0.lock().unwrap().is_empty());
    }
}
