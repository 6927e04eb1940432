//! Hooks of the simulation of the engine (`tests/engine/swarm.rs`): repeatable jitter, and bugs that it must find.
//!
//! They exist in builds with the feature `fail-points`, for the engines that run on the thread of the test. In a build
//! without it no bug can be planted: [`is_planted`] is the constant `false`.

/// A bug that a test plants into the engine, to show that the simulation finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PlantedBug {
    /// Outcomes whose lease has expired stay queued, and are sent.
    CompletionAfterExpiry,
    /// A dispatch runs on although a renewal found that its lease is lost.
    LostLeaseNotCancelled,
    /// A dispatch runs on although its lease is about to expire.
    OverdueNotCancelled,
    /// The slot of a cancelled dispatch is not freed.
    CancelledSlotLeaks,
    /// An engine that stops drops the leases that it has not started, without a release.
    StopWithoutRelease,
    /// After a probe that says nothing about its route, the breaker waits for its result for ever.
    NeutralProbeKeepsProbing,
    /// The results of a renewal are applied to the wrong leases.
    RenewalOfWrongLease,
    /// An engine that drains goes on claiming.
    ClaimWhileDraining,
    /// A completion that the database did not answer is not retried, and its lease stays held.
    LostCompletion,
}

#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub(crate) fn is_planted(_bug: PlantedBug) -> bool {
    false
}

#[cfg(not(feature = "fail-points"))]
#[inline(always)]
pub(crate) fn jitter() -> Option<u32> {
    None
}

#[cfg(feature = "fail-points")]
pub(crate) use hooks::{is_planted, jitter};
#[cfg(feature = "fail-points")]
pub use hooks::{plant, set_jitter};

#[cfg(feature = "fail-points")]
mod hooks {
    use std::cell::{Cell, RefCell};

    use super::PlantedBug;

    type Jitter = Box<dyn FnMut() -> u32>;

    thread_local! {
        static PLANTED: Cell<Option<PlantedBug>> = const { Cell::new(None) };
        static JITTER: RefCell<Option<Jitter>> = const { RefCell::new(None) };
    }

    /// Plants a bug into the engines that run on this thread, or removes it.
    pub fn plant(bug: Option<PlantedBug>) {
        PLANTED.set(bug);
    }

    pub(crate) fn is_planted(bug: PlantedBug) -> bool {
        PLANTED.get() == Some(bug)
    }

    /// Sets where the engines that run on this thread take their jitter from: numbers below 1024.
    pub fn set_jitter(source: impl FnMut() -> u32 + 'static) {
        JITTER.set(Some(Box::new(source)));
    }

    pub(crate) fn jitter() -> Option<u32> {
        JITTER.with_borrow_mut(|source| source.as_mut().map(|next| next() % 1024))
    }
}
