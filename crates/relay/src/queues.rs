//! Lets the jobs of one aggregate or entity leave this process one at a time, in the order in which they were claimed.
//!
//! Each job that is claimed takes its place behind the last one of its subject that this process still holds, and
//! comes when that one is done, however it went. Nothing here knows of other processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// What has an order of its own, an aggregate or an entity: its type and its id.
type Subject = (String, String);

/// The last job of each subject that this process holds.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues(Arc<Mutex<HashMap<Subject, Last>>>);

#[derive(Debug)]
struct Last {
    /// Closed when that job is done.
    done: watch::Receiver<()>,
    ticket: u64,
}

/// The place of a job in the queue of its subject. Dropped, it lets the next one come.
#[derive(Debug)]
pub(crate) struct Place {
    queues: Queues,
    subject: Subject,
    ticket: u64,
    before: Option<watch::Receiver<()>>,
    _held: watch::Sender<()>,
}

impl Queues {
    /// Takes the place behind the last job of this subject. Call it in the order in which they are to leave.
    pub(crate) fn stand(&self, kind: &str, id: &str) -> Place {
        let subject = (kind.to_owned(), id.to_owned());
        let (held, done) = watch::channel(());
        // Nothing that holds this lock can panic half-way.
        let mut queues = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = queues.get(&subject).map_or(0, |last| last.ticket + 1);
        let before = queues.insert(subject.clone(), Last { done, ticket }).map(|last| last.done);
        Place { queues: self.clone(), subject, ticket, before, _held: held }
    }
}

impl Place {
    /// Waits until the one before is done.
    pub(crate) async fn come(&mut self) {
        if let Some(mut before) = self.before.take() {
            while before.changed().await.is_ok() {}
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut queues = self.queues.0.lock().unwrap_or_else(PoisonError::into_inner);
        if queues.get(&self.subject).is_some_and(|last| last.ticket == self.ticket) {
            queues.remove(&self.subject);
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
    async fn one_after_the_other_and_others_are_not_held_up() {
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
