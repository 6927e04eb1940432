//! The time left under a lease, estimated by the clock of this process.
//!
//! Only the database decides whether a lease holds. The engine needs an estimate that errs on the safe side: it counts a term from
//! before the call was sent that granted it, by the monotonic clock of this process. So what it takes for live
//! is live, unless the process itself stalled; for that case the database checks again.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// How long leases of a lane last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// This long, and renewed while the dispatch runs.
    Renewable(Duration),
    /// This long and no longer: a dispatch that is not done by then has lost its lease.
    Fixed(Duration),
}

impl Term {
    /// The time from the grant, or the last renewal, to the end.
    #[must_use]
    pub fn length(self) -> Duration {
        match self {
            Self::Renewable(length) | Self::Fixed(length) => length,
        }
    }

    /// How old a lease is when it is renewed, if it can be.
    #[must_use]
    pub(crate) fn renewed_after(self) -> Option<Duration> {
        match self {
            Self::Renewable(length) => Some(length / 3),
            Self::Fixed(_) => None,
        }
    }
}

/// The lease of a running dispatch, as it is renewed.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    end: watch::Receiver<Instant>,
    margin: Duration,
}

impl LeaseWatch {
    /// A lease that ends then, and the sender that moves its end. Work on it must be over `margin` before the end.
    #[must_use]
    pub fn new(end: Instant, margin: Duration) -> (watch::Sender<Instant>, Self) {
        let (sender, receiver) = watch::channel(end);
        (sender, Self { end: receiver, margin })
    }

    /// The time that is left to work under this lease. Zero: nothing may leave any more.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let end = *self.end.borrow();
        end.saturating_duration_since(Instant::now()).saturating_sub(self.margin)
    }
}
