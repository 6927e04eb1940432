//! The time left under a lease, estimated by the clock of this process.
//!
//! Only the database decides whether a lease is held. The engine needs an estimate that errs on the safe side: it
//! counts the term from before it sent the claim or renewal, by the monotonic clock of this process. So a lease that
//! the engine considers live is live, unless the process itself stalled; for that case the database checks again.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// The term of the leases of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Term {
    /// Leases of this length, renewed while the dispatch runs.
    Renewable(Duration),
    /// Leases of this length that cannot be renewed: a dispatch that takes longer loses its lease.
    Fixed(Duration),
}

impl Term {
    /// The time from the grant or the last renewal to the expiry.
    #[must_use]
    pub fn length(self) -> Duration {
        match self {
            Self::Renewable(length) | Self::Fixed(length) => length,
        }
    }

    /// The age at which a lease is renewed, if it can be renewed.
    #[must_use]
    pub(crate) fn renewed_after(self) -> Option<Duration> {
        match self {
            Self::Renewable(length) => Some(length / 3),
            Self::Fixed(_) => None,
        }
    }
}

/// The remaining time of a running dispatch's lease, updated by each renewal.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    expiry: watch::Receiver<Instant>,
    margin: Duration,
}

impl LeaseWatch {
    /// A lease that expires at `expiry`, and the sender that extends it. The dispatch must end `margin` before the
    /// expiry.
    #[must_use]
    pub fn new(expiry: Instant, margin: Duration) -> (watch::Sender<Instant>, Self) {
        let (sender, receiver) = watch::channel(expiry);
        (sender, Self { expiry: receiver, margin })
    }

    /// The time left under this lease. At zero, nothing may be sent any more.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let expiry = *self.expiry.borrow();
        expiry.saturating_duration_since(Instant::now()).saturating_sub(self.margin)
    }
}
