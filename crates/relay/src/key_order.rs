//! FIFO order per key within this process: the jobs of one aggregate or entity are dispatched one at a time, in claim
//! order.
//!
//! Each claimed job joins the queue of its key and waits until the job before it has ended, whatever its outcome. A job
//! may leave a note for the next one. Order across processes is not decided here.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// An aggregate or an entity: its type and its id.
type Key = (String, String);

/// The last job of each key that this process holds, and the number of jobs that wait for their turn. `N` is what a job
/// may leave for the next one.
#[derive(Debug)]
pub(crate) struct KeyOrder<N = ()>(Arc<Mutex<HashMap<Key, Last<N>>>>, Arc<AtomicUsize>);

#[derive(Debug)]
struct Last<N> {
    /// Closed when that job has ended; holds its note.
    ended: watch::Receiver<Option<N>>,
    ticket: u64,
}

/// The turn of a job in the queue of its key. Dropping it lets the next job go.
#[derive(Debug)]
pub(crate) struct Turn<N = ()> {
    order: KeyOrder<N>,
    key: Key,
    ticket: u64,
    before: Option<(watch::Receiver<Option<N>>, Waiting)>,
    held: watch::Sender<Option<N>>,
}

/// Counts a waiting job until it is dropped.
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

impl<N> Clone for KeyOrder<N> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0), Arc::clone(&self.1))
    }
}

impl<N> Default for KeyOrder<N> {
    fn default() -> Self {
        Self(Arc::default(), Arc::default())
    }
}

impl<N: Copy> KeyOrder<N> {
    /// Joins the queue of this key. Call it in the order in which the jobs are to be dispatched.
    pub(crate) fn join(&self, kind: &str, id: &str) -> Turn<N> {
        let key = (kind.to_owned(), id.to_owned());
        let (held, ended) = watch::channel(None);
        // Nothing that holds this lock can panic half-way.
        let mut last_jobs = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ticket = last_jobs.get(&key).map_or(0, |last| last.ticket + 1);
        let before = last_jobs.insert(key.clone(), Last { ended, ticket }).map(|last| last.ended);
        let before = before.map(|before| (before, Waiting::new(&self.1)));
        Turn { order: self.clone(), key, ticket, before, held }
    }

    /// How many jobs wait for an earlier one of their key.
    pub(crate) fn waiting(&self) -> usize {
        self.1.load(Ordering::Relaxed)
    }
}

impl<N: Copy> Turn<N> {
    /// Waits until the job before has ended. Returns its note, if it left one.
    pub(crate) async fn wait_for_turn(&mut self) -> Option<N> {
        let (before, _) = self.before.as_mut()?;
        while before.changed().await.is_ok() {}
        let note = *before.borrow();
        self.before = None;
        note
    }

    /// Whether the job was behind another one when it joined, and has not waited for its turn yet.
    pub(crate) fn must_wait(&self) -> bool {
        self.before.is_some()
    }

    /// Leaves a note for the next job.
    pub(crate) fn leave_note(&self, note: N) {
        self.held.send_replace(Some(note));
    }

    /// Whether no other job of this process is behind it.
    pub(crate) fn is_last(&self) -> bool {
        let last_jobs = self.order.0.lock().unwrap_or_else(PoisonError::into_inner);
        last_jobs.get(&self.key).is_some_and(|last| last.ticket == self.ticket)
    }
}

impl<N> Drop for Turn<N> {
    fn drop(&mut self) {
        let mut last_jobs = self.order.0.lock().unwrap_or_else(PoisonError::into_inner);
        if last_jobs.get(&self.key).is_some_and(|last| last.ticket == self.ticket) {
            last_jobs.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    async fn is_waiting(turn: &mut Turn<u8>) -> bool {
        timeout(Duration::from_secs(1), turn.wait_for_turn()).await.is_err()
    }

    #[tokio::test(start_paused = true)]
    async fn jobs_of_one_key_run_in_order_and_other_keys_do_not_wait() {
        let order = KeyOrder::<u8>::default();
        let mut first = order.join("order", "1");
        let mut second = order.join("order", "1");
        let mut third = order.join("order", "1");
        let mut other = order.join("order", "2");
        assert!(!is_waiting(&mut first).await);
        assert!(!is_waiting(&mut other).await);
        assert!(is_waiting(&mut second).await);
        assert_eq!((order.waiting(), second.is_last(), third.is_last()), (2, false, true));
        drop(first);
        assert!(!is_waiting(&mut second).await);
        assert_eq!(order.waiting(), 1);
        assert!(is_waiting(&mut third).await);
        // A job that is abandoned does not block the next.
        drop(second);
        assert!(!is_waiting(&mut third).await);
        drop(third);
        drop(other);
        assert!(order.0.lock().unwrap().is_empty());
        // A job that left no note leaves none of an earlier one.
        let (first, mut second) = (order.join("order", "1"), order.join("order", "1"));
        let mut third = order.join("order", "1");
        first.leave_note(7);
        drop(first);
        assert_eq!(second.wait_for_turn().await, Some(7));
        drop(second);
        assert_eq!(third.wait_for_turn().await, None);
        drop(third);
        // A job that never got its turn does not count either.
        let (first, second) = (order.join("order", "1"), order.join("order", "1"));
        drop(second);
        assert_eq!(order.waiting(), 0);
        drop(first);
    }
}
