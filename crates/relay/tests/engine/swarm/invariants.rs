//! What must hold in every run.

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Invariant {
    DispatchedOnce,
    LiveLease,
    ExclusiveRow,
    WithinSlots,
    WithinCapacity,
    LostLeaseAbandoned,
    DispatchEndsBeforeLease,
    CompletedInTime,
    RecordedOnce,
    OwnOutcome,
    UnsentNotRecorded,
    ReleasedUnsent,
    FixedLeaseNotRenewed,
    StopReleases,
    StopEndsCalls,
    StopInTime,
    BreakerHolds,
    Bounded,
    NoPanic,
    Progress,
    CapacityReturned,
    NothingHeld,
}

impl fmt::Display for Invariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sentence = match self {
            Self::DispatchedOnce => "no row is dispatched twice under the same lease",
            Self::LiveLease => "no dispatch starts without a live lease",
            Self::ExclusiveRow => "no row is dispatched by two engines at a time",
            Self::WithinSlots => "dispatches are never more than the slots or a route's limit",
            Self::WithinCapacity => "no claim asks for more than the free capacity",
            Self::LostLeaseAbandoned => "a lost lease cancels its dispatch, and is neither renewed nor completed",
            Self::DispatchEndsBeforeLease => "a dispatch ends a margin before its lease",
            Self::CompletedInTime => "completions are sent only while the lease lasts",
            Self::RecordedOnce => "a lease that has ended is not completed, renewed or released again",
            Self::OwnOutcome => "the outcome that is recorded is that of the dispatch under the same lease",
            Self::UnsentNotRecorded => "no outcome is recorded for a dispatch that never started",
            Self::ReleasedUnsent => "only leases whose dispatch never started are released",
            Self::FixedLeaseNotRenewed => "a lease of a fixed term is never renewed",
            Self::StopReleases => "an engine that drains releases each lease that it has not started",
            Self::StopEndsCalls => "after a stop nothing is claimed, and after the end nothing is called",
            Self::StopInTime => "an engine ends within its grace period and one call timeout",
            Self::BreakerHolds => "a breaker that is open lets only probes through, one at a time",
            Self::Bounded => "calls in flight and leases held are bounded",
            Self::NoPanic => "an engine does not panic",
            Self::Progress => "once faults stop, every row ends",
            Self::CapacityReturned => "once every row has ended, an engine claims for all of its slots and routes",
            Self::NothingHeld => "an engine that ends without faults has left no lease behind",
        };
        write!(f, "{self:?}: {sentence}")
    }
}

/// An invariant that did not hold, and what was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Violation {
    pub(crate) invariant: Invariant,
    pub(crate) seen: String,
}
