//! The words of the payment lane: what may become of an outbox, and what people may decide about it.

use crate::words::words;

words! {
    /// How an attempt ended.
    AttemptState, "the state of an attempt" {
        /// The rail took it. The outbox has ended.
        Dispatched = "DISPATCHED",
        /// It failed for good, or its retries are used up. The outbox has ended.
        Failed = "FAILED",
        /// It failed in a way that may pass; another attempt follows.
        Retryable = "RETRYABLE",
        /// Its lease ran out without an outcome; another attempt follows.
        ZombieRequeue = "ZOMBIE_REQUEUE",
    }
}

impl AttemptState {
    /// Whether nothing more happens to the outbox after it.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Dispatched | Self::Failed => true,
            Self::Retryable | Self::ZombieRequeue => false,
        }
    }
}

words! {
    /// What a pending outbox is doing now.
    OutboxStatus, "the status of an outbox" {
        /// A worker holds its lease.
        Leased = "LEASED",
        /// Its worker was not heard of again; the next claim or repair takes it.
        LeaseExpired = "LEASE_EXPIRED",
        /// Its rail is paused.
        Paused = "PAUSED",
        /// An earlier instruction of its participant must leave first.
        Waiting = "WAITING",
        /// Its time has not come.
        Scheduled = "SCHEDULED",
        /// The next claim may take it.
        Due = "DUE",
    }
}

words! {
    /// What became of an outbox: while it is pending what it is doing, then how it ended.
    OutboxState, "the state of an outbox" {
        /// The next claim may take it.
        Due = "DUE",
        /// A worker holds its lease.
        Leased = "LEASED",
        /// Its worker was not heard of again; the next claim or repair takes it.
        LeaseExpired = "LEASE_EXPIRED",
        /// Its time has not come.
        Scheduled = "SCHEDULED",
        /// An earlier instruction of its participant must leave first.
        Waiting = "WAITING",
        /// Its rail is paused.
        Paused = "PAUSED",
        /// The rail took it. The outbox has ended.
        Dispatched = "DISPATCHED",
        /// It failed for good, or its retries are used up. The outbox has ended.
        Failed = "FAILED",
    }
}

words! {
    /// Something that happened to an outbox.
    EventKind, "an event" {
        /// It was committed.
        Enqueued = "ENQUEUED",
        /// A worker was given a lease.
        LeaseClaimed = "LEASE_CLAIMED",
        /// The worker said how it ended.
        AttemptCompleted = "ATTEMPT_COMPLETED",
        /// The worker said nothing, and the lease was ended for it.
        LeaseExpiredRepaired = "LEASE_EXPIRED_REPAIRED",
        /// An operator tried it again, as another outbox.
        Redriven = "REDRIVEN",
    }
}

words! {
    /// Something that a person did.
    OperationKind, "an operation" {
        /// Tried a terminal failure again.
        Redrive = "REDRIVE",
        /// Said what became of a terminal failure.
        Resolve = "RESOLVE",
        /// Registered a rail.
        RegisterRail = "REGISTER_RAIL",
        /// Changed the policy of a rail.
        SetRail = "SET_RAIL",
        /// Retired a rail.
        RetireRail = "RETIRE_RAIL",
        /// Stopped a rail.
        PauseRail = "PAUSE_RAIL",
        /// Let a rail go on.
        ResumeRail = "RESUME_RAIL",
        /// Ended the expired leases of a rail.
        Repair = "REPAIR",
    }
}

words! {
    /// What a person found out about a terminal failure.
    Resolution, "a resolution" {
        /// The money moved. It is never redriven.
        Paid = "PAID",
        /// The money did not move. It may be redriven.
        NotPaid = "NOT_PAID",
        /// A failure whose outcome is known is let be.
        Skipped = "SKIPPED",
    }
}

words! {
    /// What a rail wants done when nobody knows whether it paid.
    OnUnknown, "what to do about an unknown outcome" {
        /// Ask the rail first.
        Inquire = "INQUIRE",
        /// Send it again: the rail knows the idempotency key.
        Resend = "RESEND",
        /// Leave it to people.
        Stop = "STOP",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_reads_what_it_prints() {
        for state in AttemptState::ALL {
            assert_eq!(state.to_string().parse(), Ok(*state));
        }
    }

    #[test]
    fn an_unknown_word_is_answered_with_the_known_ones() {
        let error = "PENDING".parse::<AttemptState>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"PENDING\" is not the state of an attempt: it must be one of DISPATCHED, FAILED, RETRYABLE, ZOMBIE_REQUEUE"
        );
    }
}
