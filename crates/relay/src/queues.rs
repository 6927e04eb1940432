//! Lets the jobs of one aggregate or entity leave this process one at a time, in the order in which they were claimed.
//!
//! Each job that is claimed takes its place behind the last one of its subject that this process still holds, and
//! comes when that one is done, however it went. Nothing here knows of other processes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// What has an order of its own, an aggregate or an entity: its type and its id.
type Subject = (String, String);

/// The last job of each subject that this process holds, and how many wait for one before them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Queues(Arc<Mutex<HashMap<Subject, Last>>>, Arc<AtomicUsize>);

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
    before: Option<(watch::Receiver<()>, Waiting)>,
    _held: watch::Sender<()>,
}

/// One that waits, counted until it is dropped.
#[derive(Debug)]
struct Waiting(Arc<AtomicUsize>);

impl Waiting {
    fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(count))
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
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
        let before = before.map(|before| (before, Waiting::new(&self.1)));
        Place { queues: self.clone(), subject, ticket, before, _held: held }
    }

    /// How many jobs have not come yet because one of their subject is before them.
    pub(crate) fn waiting(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }
}

impl Place {
    /// Waits until the one before is done.
    pub(crate) async fn come(&mut self) {
        if let Some((before, _)) = &mut self.before {
            while before.changed().await.is_ok() {}
        }
        self.before = None;
    }

    /// Whether nobody of this process stands behind.
    pub(crate) fn is_last(&self) -> bool {
        let queues = self.queues.0.lock().unwrap_or_else(PoisonError::into_inner);
        queues.get(&self.subject).is_some_and(|last| last.ticket == self.ticket)
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
        timeout(Duration::from_secs(1), place.come()).await.is_err()
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
        assert_eq!((queues.waiting(), second.is_last(), third.is_last()), (2, false, true));
        drop(first);
        assert!(!waits(&mut second).await);
        assert_eq!(queues.waiting(), 1);
        assert!(waits(&mut third).await);
        // One that is given up does not stop the next.
        drop(second);
        assert!(!waits(&mut third).await);
        drop(third);
        drop(other);
        assert!(queues.0.lock().unwrap().is_empty());
        // One that never came does not count either.
        let (first, second) = (queues.stand("order", "1"), queues.stand("order", "1"));
        drop(second);
        assert_eq!(queues.waiting(), 0);
        drop(first);
    }
}
