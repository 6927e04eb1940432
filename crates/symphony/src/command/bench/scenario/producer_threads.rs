//! Threads that run producer sessions, as the threads of `pgbench -j` do.
//!
//! A session and its connection run on the same thread. On two threads, each call would cost several thread switches.

use std::thread;

use futures_util::future::try_join_all;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::failure::Failure;

/// One thread per session up to the number of cores. Dropping this ends the threads and drops their work.
pub(super) struct ProducerThreads(Vec<(Handle, oneshot::Sender<()>)>);

impl ProducerThreads {
    pub(super) fn start(sessions: usize) -> Result<Self, Failure> {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let threads = (0..sessions.clamp(1, cores)).map(|_| thread());
        threads.collect::<Result<_, _>>().map(Self).map_err(|error| Failure::because("no producer thread", error))
    }

    /// Runs the work of each session, in the order of the sessions, to the end or to the first failure. A session is
    /// always on the same thread.
    pub(super) async fn run<T: Send + 'static>(
        &self,
        work: impl IntoIterator<Item = impl Future<Output = Result<T, Failure>> + Send + 'static>,
    ) -> Result<Vec<T>, Failure> {
        let tasks = work.into_iter().zip(self.0.iter().cycle()).map(|(work, (thread, _))| thread.spawn(work));
        let result = async |task: tokio::task::JoinHandle<_>| {
            task.await.map_err(|error| Failure::because("a producer did not end", error))?
        };
        try_join_all(tasks.map(result)).await
    }
}

/// A thread that runs a runtime until the sender is dropped.
fn thread() -> std::io::Result<(Handle, oneshot::Sender<()>)> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let handle = runtime.handle().clone();
    let (sender, dropped) = oneshot::channel();
    thread::Builder::new().name("producer".to_owned()).spawn(move || runtime.block_on(dropped))?;
    Ok((handle, sender))
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use super::*;

    #[tokio::test]
    async fn the_first_failure_ends_the_run_although_another_producer_never_does() {
        let threads = ProducerThreads::start(2).unwrap();
        let work = |number: u8| async move {
            if number == 0 { pending::<Result<(), _>>().await } else { Err(Failure::new("refused")) }
        };
        let failure = threads.run((0..2).map(work)).await.unwrap_err();
        assert!(failure.render().contains("refused"));
    }

    #[tokio::test]
    async fn a_panic_of_a_producer_is_a_failure() {
        let threads = ProducerThreads::start(1).unwrap();
        let work = async { if thread::current().name() == Some("producer") { panic!("a bug") } else { Ok(()) } };
        assert!(threads.run([work]).await.is_err());
    }

    #[tokio::test]
    async fn a_session_stays_on_its_thread_and_results_are_in_order() {
        let threads = ProducerThreads::start(5).unwrap();
        let work = |number| async move { Ok((number, thread::current().id())) };
        let first = threads.run((0..5).map(work)).await.unwrap();
        assert_eq!(first.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
        assert_eq!(first, threads.run((0..5).map(work)).await.unwrap());
        let caller = thread::current().id();
        assert!(first.iter().all(|(_, id)| *id != caller));
    }
}
