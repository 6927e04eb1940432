//! The enums of the payment lane: states of outboxes and attempts, events, operations, resolutions.

use crate::text_enum::text_enum;

text_enum! {
    /// The state in which an attempt ended.
    AttemptState, "the state of an attempt" {
        /// The rail accepted it. Terminal.
        Dispatched = "DISPATCHED",
        /// It failed terminally, or after `max_attempts`, and moved to the dead-letter queue. Terminal.
        Failed = "FAILED",
        /// It failed temporarily; a retry follows.
        Retryable = "RETRYABLE",
        /// Its lease expired without an outcome; the row was requeued.
        ZombieRequeue = "ZOMBIE_REQUEUE",
    }
}

impl AttemptState {
    /// Whether it is the terminal state of the outbox.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Dispatched | Self::Failed => true,
            Self::Retryable | Self::ZombieRequeue => false,
        }
    }
}

text_enum! {
    /// The status of a pending outbox.
    OutboxStatus, "the status of an outbox" {
        /// A worker holds its lease.
        Leased = "LEASED",
        /// Its lease has expired; the next claim or repair requeues it.
        LeaseExpired = "LEASE_EXPIRED",
        /// Its rail is paused.
        Paused = "PAUSED",
        /// Its rail is held since a new epoch was opened.
        Held = "HELD",
        /// An earlier payment of its participant has failed, and holds it until an operator has acted.
        HeldByFailure = "HELD_BY_FAILURE",
        /// The rail has accepted it, and its outcome comes later: it is inquired about, and never sent again.
        AwaitingConfirmation = "AWAITING_CONFIRMATION",
        /// It is parked behind the head-of-line payment of its participant.
        Parked = "PARKED",
        /// It is due later.
        Scheduled = "SCHEDULED",
        /// It is due: the next claim may return it.
        Due = "DUE",
    }
}

text_enum! {
    /// The state of an outbox: its status while it is pending, then its terminal state.
    OutboxState, "the state of an outbox" {
        /// It is due: the next claim may return it.
        Due = "DUE",
        /// A worker holds its lease.
        Leased = "LEASED",
        /// Its lease has expired; the next claim or repair requeues it.
        LeaseExpired = "LEASE_EXPIRED",
        /// It is due later.
        Scheduled = "SCHEDULED",
        /// The rail has accepted it, and its outcome comes later: it is inquired about, and never sent again.
        AwaitingConfirmation = "AWAITING_CONFIRMATION",
        /// It is parked behind the head-of-line payment of its participant.
        Parked = "PARKED",
        /// Its rail is paused.
        Paused = "PAUSED",
        /// Its rail is held since a new epoch was opened.
        Held = "HELD",
        /// An earlier payment of its participant has failed, and holds it until an operator has acted.
        HeldByFailure = "HELD_BY_FAILURE",
        /// The rail accepted it. Terminal.
        Dispatched = "DISPATCHED",
        /// It failed terminally, or after `max_attempts`, and moved to the dead-letter queue. Terminal.
        Failed = "FAILED",
    }
}

text_enum! {
    /// A kind of event in the timeline of an outbox.
    EventKind, "an event" {
        /// The producer enqueued it.
        Enqueued = "ENQUEUED",
        /// A worker claimed it.
        LeaseClaimed = "LEASE_CLAIMED",
        /// The worker recorded the result of the attempt.
        AttemptCompleted = "ATTEMPT_COMPLETED",
        /// The lease expired, and a repair ended it.
        LeaseExpiredRepaired = "LEASE_EXPIRED_REPAIRED",
        /// The rail reported the outcome by itself, in a callback.
        Confirmed = "CONFIRMED",
        /// It was cancelled before it was sent.
        Cancelled = "CANCELLED",
        /// An operator redrove it as a new outbox.
        Redriven = "REDRIVEN",
    }
}

text_enum! {
    /// What a rail reports by itself about a payment.
    ConfirmedOutcome, "a confirmed outcome" {
        /// It was executed.
        Executed = "EXECUTED",
        /// It was refused, and will not be paid.
        Refused = "REFUSED",
    }
}

text_enum! {
    /// What the database did with a confirmation. All but the first two were refused, and are kept as evidence.
    ConfirmationResult, "the result of a confirmation" {
        /// The payment has ended with it.
        Settled = "SETTLED",
        /// It was known already.
        Replayed = "REPLAYED",
        /// The payment has ended otherwise.
        ContradictsOutcome = "CONTRADICTS_OUTCOME",
        /// The payment has ended with an unknown outcome: an operator has to resolve it.
        AfterUnknownOutcome = "AFTER_UNKNOWN_OUTCOME",
        /// Another bank than the one that reports it may have the payment.
        OtherEndpoint = "OTHER_ENDPOINT",
        /// The payment was never sent.
        NeverSent = "NEVER_SENT",
        /// No payment of the rail has the key.
        UnknownKey = "UNKNOWN_KEY",
        /// Several payments of the rail have the key.
        AmbiguousKey = "AMBIGUOUS_KEY",
    }
}

impl ConfirmationResult {
    /// Whether it was refused.
    pub fn is_refused(self) -> bool {
        !matches!(self, Self::Settled | Self::Replayed)
    }
}

text_enum! {
    /// What an orphaned outcome proves.
    OrphanKind, "an orphan kind" {
        /// The database has no row of the outbox that the worker had claimed.
        UnknownOutbox = "UNKNOWN_OUTBOX",
        /// The rail had executed the key before the first attempt that the ledger has.
        ReplayedFirstAttempt = "REPLAYED_FIRST_ATTEMPT",
    }
}

text_enum! {
    /// A kind of operation in the audit log.
    OperationKind, "an operation" {
        /// Redrove a dead letter.
        Redrive = "REDRIVE",
        /// Resolved a dead letter.
        Resolve = "RESOLVE",
        /// Cancelled a payment that was never sent.
        Cancel = "CANCEL",
        /// Registered a rail.
        RegisterRail = "REGISTER_RAIL",
        /// Changed the policy of a rail.
        SetRail = "SET_RAIL",
        /// Retired a rail.
        RetireRail = "RETIRE_RAIL",
        /// Paused a rail.
        PauseRail = "PAUSE_RAIL",
        /// Resumed a rail.
        ResumeRail = "RESUME_RAIL",
        /// Repaired the expired leases of a rail.
        Repair = "REPAIR",
        /// Made the scheduled payments of a rail due.
        MakeDue = "MAKE_DUE",
        /// Erased the payload of an ended payment.
        Erase = "ERASE",
        /// Changed for how long something is kept.
        SetRetention = "SET_RETENTION",
        /// Declared two endpoints of a rail to be the same bank.
        DeclareSameEndpoint = "DECLARE_SAME_ENDPOINT",
        /// Revoked such a declaration.
        RevokeSameEndpoint = "REVOKE_SAME_ENDPOINT",
        /// Compared a rail with the bank's export.
        Reconcile = "RECONCILE",
        /// Archived a partition of the ledger.
        ArchivePartition = "ARCHIVE_PARTITION",
        /// Dropped a partition of the ledger that was archived.
        DropPartition = "DROP_PARTITION",
        /// Opened a new epoch.
        OpenEpoch = "OPEN_EPOCH",
        /// Released a rail that a new epoch had held.
        RecoverEpoch = "RECOVER_EPOCH",
    }
}

text_enum! {
    /// An operator's resolution of a dead letter.
    Resolution, "a resolution" {
        /// The payment was made. It can never be redriven.
        Paid = "PAID",
        /// The payment was not made. It may be redriven.
        NotPaid = "NOT_PAID",
        /// The failure is known and needs no action.
        Skipped = "SKIPPED",
    }
}

text_enum! {
    /// The rail's policy for an unknown outcome.
    OnUnknown, "what to do about an unknown outcome" {
        /// Send an inquiry to the rail first.
        Inquire = "INQUIRE",
        /// Send it again: the rail deduplicates by the idempotency key.
        Resend = "RESEND",
        /// Move it to the dead-letter queue, for an operator.
        Stop = "STOP",
    }
}

text_enum! {
    /// The rail's policy for payments of earlier epochs when a new one is opened.
    OnEpochChange, "what to do when a new epoch is opened" {
        /// Claim them, and inquire about each before it is sent.
        Inquire = "INQUIRE",
        /// Claim nothing of the rail until an operator releases it.
        Hold = "HOLD",
    }
}

text_enum! {
    /// What a failure on an ordered rail does to the later payments of its participant.
    OnFailure, "what a failure does to later payments" {
        /// The next one goes on.
        Continue = "CONTINUE",
        /// They wait until an operator redrives, resolves or skips the failure.
        Hold = "HOLD",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_parses_what_it_prints() {
        for state in AttemptState::ALL {
            assert_eq!(state.to_string().parse(), Ok(*state));
        }
    }

    #[test]
    fn an_unknown_state_is_refused_with_the_known_ones() {
        let error = "PENDING".parse::<AttemptState>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"PENDING\" is not the state of an attempt: it must be one of DISPATCHED, FAILED, RETRYABLE, ZOMBIE_REQUEUE"
        );
    }
}
