//! Ctrl-C and its kin: work is dropped or stopped between two parts of it, and the exit code says why.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that ask this program to end. From the first look on, they no longer end it by themselves.
pub(crate) struct Interruption {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal is gone.
    hangup: Signal,
}

impl Interruption {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::no(format!("cannot listen for signals: {error}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for one. What came since the last look counts.
    pub(crate) async fn caught(&mut self) -> Failure {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        Failure::interrupted(kind.as_raw_value())
    }

    /// Does the work unless one comes; the work is dropped then, with all that it held.
    pub(crate) async fn or<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            done = work => Ok(done),
            caught = self.caught() => Err(caught),
        }
    }
}
