//! Requests for a graceful shutdown: the first drains an engine, the second stops it immediately. The drain itself is
//! `Phase` and `on_stop` in `engine/state.rs`.

use tokio::sync::watch;

/// Requests a stop. If every handle is dropped without a request, the engine keeps running.
#[derive(Clone, Debug)]
pub struct StopHandle(watch::Sender<u8>);

/// Receives stop requests. One handle may stop several engines.
#[derive(Clone, Debug)]
pub struct StopSignal(watch::Receiver<u8>);

/// What an engine was requested to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopMode {
    /// Run: no stop was requested.
    Run,
    /// Claim no more rows, finish running dispatches, release leases that were not started.
    Drain,
    /// Stop at once and let the leases expire.
    Immediate,
}

impl StopHandle {
    /// A handle and the signal that it controls.
    #[must_use]
    pub fn new() -> (Self, StopSignal) {
        let (sender, receiver) = watch::channel(0);
        (Self(sender), StopSignal(receiver))
    }

    /// Requests a stop: to drain at the first call, to stop immediately at the second.
    pub fn request_stop(&self) {
        self.0.send_modify(|count| *count = count.saturating_add(1));
    }
}

impl StopSignal {
    /// What was requested so far.
    #[must_use]
    pub fn mode(&self) -> StopMode {
        match *self.0.borrow() {
            0 => StopMode::Run,
            1 => StopMode::Drain,
            _ => StopMode::Immediate,
        }
    }

    /// Waits for a request that was not seen yet; cancel-safe. Never returns once every handle is dropped.
    pub(crate) async fn changed(&mut self) -> StopMode {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.mode()
    }

    /// Waits for the request to stop at once.
    pub(crate) async fn until_immediate(&mut self) {
        while self.mode() != StopMode::Immediate {
            self.changed().await;
        }
    }
}
