//! How an engine is told to stop: once, and it finishes what it holds; twice, and it leaves at once.

use tokio::sync::watch;

/// The hand on the switch. Dropped without a word, the engine runs on.
#[derive(Clone, Debug)]
pub struct Stop(watch::Sender<u8>);

/// The engine's end of it. One switch may serve several engines.
#[derive(Clone, Debug)]
pub struct Signal(watch::Receiver<u8>);

/// How much an engine was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Nothing: it works.
    Run,
    /// Claim nothing more, finish what runs, give back what did not start.
    Finish,
    /// Leave everything as it is. Leases expire.
    Leave,
}

impl Stop {
    /// A switch and the signal that follows it.
    #[must_use]
    pub fn new() -> (Self, Signal) {
        let (sender, receiver) = watch::channel(0);
        (Self(sender), Signal(receiver))
    }

    /// Says stop. The second time it means at once.
    pub fn signal(&self) {
        self.0.send_modify(|count| *count = count.saturating_add(1));
    }
}

impl Signal {
    /// What was said so far.
    #[must_use]
    pub fn wish(&self) -> Wish {
        match *self.0.borrow() {
            0 => Wish::Run,
            1 => Wish::Finish,
            _ => Wish::Leave,
        }
    }

    /// Waits until something was said that was not seen yet; cancel-safe. Never, once the hand is gone.
    pub(crate) async fn said(&mut self) -> Wish {
        if self.0.changed().await.is_err() {
            std::future::pending::<()>().await;
        }
        self.wish()
    }
}
