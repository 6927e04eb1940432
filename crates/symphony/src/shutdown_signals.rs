//! The shutdown signals SIGINT (Ctrl-C), SIGTERM and SIGHUP, and the exit code that each one means.

use std::io::IsTerminal as _;

use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Failure;

/// The signals that ask this program to end. Once they are listened to, they no longer end the process by themselves.
pub(crate) struct ShutdownSignals {
    interrupt: Signal,
    terminate: Signal,
    /// The terminal was closed. None where SIGHUP means something else.
    hangup: Option<Signal>,
}

impl ShutdownSignals {
    pub(crate) fn listen() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|error| Failure::new(format!("cannot listen for signals: {error}")));
        Ok(Self {
            interrupt: listen(SignalKind::interrupt())?,
            terminate: listen(SignalKind::terminate())?,
            hangup: Some(listen(SignalKind::hangup())?),
        })
    }

    /// Takes SIGHUP out of the signals that end the program, unless it runs in a terminal, whose end it reports.
    pub(crate) fn take_hangup(&mut self) -> Option<Signal> {
        if std::io::stderr().is_terminal() { None } else { self.hangup.take() }
    }

    /// Waits for a signal. One that arrived since the last call counts.
    pub(crate) async fn recv(&mut self) -> Failure {
        let kind = tokio::select! {
            _ = self.interrupt.recv() => SignalKind::interrupt(),
            _ = self.terminate.recv() => SignalKind::terminate(),
            () = received(self.hangup.as_mut()) => SignalKind::hangup(),
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

/// Waits for a signal. Without one it waits for ever.
pub(crate) async fn received(signal: Option<&mut Signal>) {
    if let Some(signal) = signal
        && signal.recv().await.is_some()
    {
        return;
    }
    // No signal can arrive any more.
    std::future::pending::<()>().await;
}
