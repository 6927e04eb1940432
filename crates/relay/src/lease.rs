//! The time left under a lease, estimated by the clock of this process.
//!
//! Only the database decides whether a lease is held. The engine needs an estimate that errs on the safe side: it
//! counts the term from before it sent the claim or renewal, by the monotonic clock of this process. So a lease that
//! the engine considers live is live, unless the process itself stalled; for that case the database checks again.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

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

/// When the lease of a running dispatch expires, at the latest. Each renewal extends it.
#[derive(Debug)]
pub struct LeaseExpiry {
    granted: Instant,
    /// How long after `granted`, in nanoseconds. It only grows.
    extension_ns: AtomicU64,
    /// Whether the dispatch was started, rather than still waiting for its turn.
    dispatched: AtomicBool,
}

impl LeaseExpiry {
    /// When the lease expires.
    #[must_use]
    pub fn get(&self) -> Instant {
        self.granted + Duration::from_nanos(self.extension_ns.load(Ordering::Acquire))
    }

    /// The lease lasts until then, unless it lasts longer already.
    pub fn extend(&self, until: Instant) {
        let extension = until.saturating_duration_since(self.granted).as_nanos();
        self.extension_ns.fetch_max(u64::try_from(extension).unwrap_or(u64::MAX), Ordering::AcqRel);
    }

    /// Whether something may have been sent under the lease.
    pub(crate) fn is_dispatched(&self) -> bool {
        self.dispatched.load(Ordering::Acquire)
    }
}

/// The remaining time of a running dispatch's lease.
#[derive(Clone, Debug)]
pub struct LeaseWatch {
    expiry: Arc<LeaseExpiry>,
    margin: Duration,
}

impl LeaseWatch {
    /// A lease that expires at `expiry`, which can be extended. The dispatch must end `margin` before the expiry.
    #[must_use]
    pub fn new(expiry: Instant, margin: Duration) -> (Arc<LeaseExpiry>, Self) {
        let expiry =
            LeaseExpiry { granted: expiry, extension_ns: AtomicU64::new(0), dispatched: AtomicBool::new(false) };
        let expiry = Arc::new(expiry);
        (Arc::clone(&expiry), Self { expiry, margin })
    }

    /// The dispatch starts: from now on its outcome is unknown if it is cancelled.
    pub(crate) fn mark_dispatched(&self) {
        self.expiry.dispatched.store(true, Ordering::Release);
    }

    /// The time left under this lease. At zero, nothing may be sent any more.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.expiry.get().saturating_duration_since(Instant::now()).saturating_sub(self.margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_lease_is_extended_and_never_shortened() {
        const S: Duration = Duration::from_secs(1);
        let now = Instant::now();
        let (expiry, watch) = LeaseWatch::new(now + 30 * S, 3 * S);
        assert_eq!((expiry.get(), watch.remaining()), (now + 30 * S, 27 * S));
        expiry.extend(now + 40 * S);
        expiry.extend(now + 35 * S);
        expiry.extend(now);
        assert_eq!((expiry.get(), watch.remaining()), (now + 40 * S, 37 * S));
        tokio::time::advance(38 * S).await;
        assert_eq!(watch.remaining(), Duration::ZERO);
    }
}
