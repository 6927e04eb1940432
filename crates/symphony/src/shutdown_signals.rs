//! The shutdown signals SIGINT (Ctrl-C), SIGTERM and SIGHUP, and the exit code that each one means.

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that ask this program to end. Once they are listened to, they no longer end the process by themselves.
pub(crate) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal was closed.
    hangup: Signal,
}

impl ShutdownSignals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: listen(SignalKind::hangup())?,
        })
    }

    /// Waits for a signal. One that arrived since the last call counts.
    pub(crate) async fn recv(&mut self) -> Failure {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            _ = self.hangup.recv() => SignalKind::hangup(),
        };
        Failure::interrupted(kind.as_raw_value())
    }

    /// Runs the work to its end, or drops it when a signal arrives.
    pub(crate) async fn run<T>(&mut self, work: impl Future<Output = T>) -> Result<T, Failure> {
        tokio::select! {
            done = work => Ok(done),
            interrupted = self.recv() => Err(interrupted),
        }
    }
}
