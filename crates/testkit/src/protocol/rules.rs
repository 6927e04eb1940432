//! The rules of the payment protocol, one function each, without I/O and clocks.
//!
//! They restate what `claim_outbox_batch`, `complete_outbox_batch`, `record_attempts`, `end_expired_leases`,
//! `advise_on_unknown_outcome` and `confirm_payment_outbox` do in SQL, and what `unknown_outcome.rs` and `answer_mapping.rs` decide in the relayer. They do not
//! call them: a check that calls what it checks finds nothing.

use symphony_db::payment::{AttemptState, OnUnknown};

/// How an attempt ended, as far as it matters for what may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ending {
    /// DISPATCHED: the bank has executed it. Terminal.
    Dispatched,
    /// FAILED, and known not to be paid. Terminal.
    NotPaid,
    /// FAILED with an unknown outcome: it waits for an operator. Terminal.
    Stopped,
    /// RETRYABLE, and known not to be paid by this attempt.
    Deferred,
    /// RETRYABLE with an unknown outcome: the next attempt begins with an inquiry.
    Unknown,
    /// RETRYABLE with AWAITING_CONFIRMATION: the rail has accepted the payment, and its outcome comes later.
    Accepted,
    /// ZOMBIE_REQUEUE: the lease expired. Its worker may have paid.
    LeaseExpired,
}

impl Ending {
    /// The ending that a ledger row records.
    pub fn of(state: AttemptState, outcome_unknown: bool) -> Self {
        match (state, outcome_unknown) {
            (AttemptState::Dispatched, _) => Self::Dispatched,
            (AttemptState::Failed, false) => Self::NotPaid,
            (AttemptState::Failed, true) => Self::Stopped,
            (AttemptState::Retryable, false) => Self::Deferred,
            (AttemptState::Retryable, true) => Self::Unknown,
            (AttemptState::ZombieRequeue, _) => Self::LeaseExpired,
        }
    }

    /// Whether the outbox has ended with it.
    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Dispatched | Self::NotPaid | Self::Stopped)
    }

    /// Whether the bank may have executed the payment.
    pub fn is_unknown(self) -> bool {
        matches!(self, Self::Stopped | Self::Unknown | Self::Accepted | Self::LeaseExpired)
    }
}

/// The number of the next attempt, from the last one in the ledger.
pub fn next_attempt_no(last: Option<i32>) -> i32 {
    last.unwrap_or(0) + 1
}

/// What a retryable result is, of a payment that the rail has accepted before: it stays accepted, whatever the worker reports.
pub fn kept(reported: Ending, accepted_before: bool) -> Ending {
    match reported {
        Ending::Deferred | Ending::Unknown if accepted_before => Ending::Accepted,
        _ => reported,
    }
}

/// What the ledger records: at `max_attempts` nothing is retried, and what is unknown stays unknown.
pub fn recorded(reported: Ending, attempt_no: i32, max_attempts: i32) -> Ending {
    match reported {
        Ending::Deferred if attempt_no >= max_attempts => Ending::NotPaid,
        Ending::Unknown | Ending::Accepted | Ending::LeaseExpired if attempt_no >= max_attempts => Ending::Stopped,
        _ => reported,
    }
}

/// What the check of a lease says to a completion, a renewal or a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseCheck {
    /// The worker holds the lease.
    Held,
    /// P7002: the lease expired, was taken over, or the token is wrong.
    Lost,
}

/// The lease check (fencing): the token of the row must be the worker's, and the lease must not have expired.
///
/// `leased` has the token of the row and whether its lease has expired; none if the row is not leased.
pub fn check_lease<Token: PartialEq>(leased: Option<(Token, bool)>, token: Token) -> LeaseCheck {
    match leased {
        Some((current, expired)) if current == token && !expired => LeaseCheck::Held,
        _ => LeaseCheck::Lost,
    }
}

/// Whether a claim may lease a row: unleased, or its lease has expired.
pub fn is_claimable(lease_expired: Option<bool>) -> bool {
    lease_expired != Some(false)
}

/// Whether order lets a row be claimed: on an ordered rail no earlier row of its participant is pending.
pub fn is_next_in_order(ordered: bool, earlier_is_pending: bool) -> bool {
    !ordered || !earlier_is_pending
}

/// What is known about a row when it is claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct History<'a, Endpoint> {
    /// The epoch in which the row was enqueued.
    pub enqueued_in: i32,
    /// The epoch of the claim.
    pub epoch: i32,
    /// Its attempts in the ledger, the first one first.
    pub attempts: &'a [PastAttempt<Endpoint>],
}

/// An attempt in the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PastAttempt<Endpoint> {
    /// How it ended.
    pub ending: Ending,
    /// The epoch in which its lease was granted. An outcome that was recorded later says nothing about leases that were lost
    /// between.
    pub epoch: i32,
    /// The endpoint that it may have sent to.
    pub endpoint: Endpoint,
}

impl<Endpoint: PartialEq> History<'_, Endpoint> {
    /// Whether an earlier attempt may have paid: the last one says so, or attempts may have been lost with an epoch.
    pub fn outcome_is_unknown(&self) -> bool {
        match self.attempts.last() {
            Some(last) if last.epoch == self.epoch => last.ending.is_unknown(),
            Some(last) => last.ending.is_unknown() || self.enqueued_in < self.epoch,
            None => self.enqueued_in < self.epoch,
        }
    }

    /// What a worker of this endpoint does first.
    ///
    /// Every attempt with an unknown outcome counts, and not only the last: that may be of a worker that died before it
    /// recorded that the endpoint is another. Of an earlier epoch every attempt counts, because a later one may have gone to
    /// the same endpoint and have been lost.
    pub fn first_step(&self, endpoint: &Endpoint) -> FirstStep {
        if !self.outcome_is_unknown() {
            return FirstStep::Send;
        }
        // The bank at another endpoint does not know what became of it.
        let elsewhere = |attempt: &PastAttempt<Endpoint>| {
            (attempt.ending.is_unknown() || attempt.epoch < self.epoch) && attempt.endpoint != *endpoint
        };
        if self.attempts.iter().any(elsewhere) {
            FirstStep::Stop
        } else if self.was_accepted() {
            FirstStep::Confirm
        } else {
            FirstStep::Inquire
        }
    }

    /// Whether the rail has accepted the payment.
    pub fn was_accepted(&self) -> bool {
        self.attempts.iter().any(|attempt| attempt.ending == Ending::Accepted)
    }

    /// Whether a confirmation of the bank at this endpoint may settle the row: it may have been sent, and to no other endpoint.
    /// `leased_to` is the endpoint of its lease.
    pub fn may_be_confirmed(&self, leased_to: Option<&Endpoint>, endpoint: &Endpoint) -> bool {
        let may_have_been_sent = leased_to.is_some() || !self.attempts.is_empty() || self.enqueued_in < self.epoch;
        let elsewhere = |attempt: &PastAttempt<Endpoint>| {
            (attempt.ending.is_unknown() || attempt.epoch < self.epoch) && attempt.endpoint != *endpoint
        };
        may_have_been_sent && leased_to.is_none_or(|at| at == endpoint) && !self.attempts.iter().any(elsewhere)
    }
}

/// What a worker does first with a row that it has claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FirstStep {
    /// Send the payment.
    Send,
    /// Ask the bank what became of the key.
    Inquire,
    /// The same, and never send: the bank has accepted the payment.
    Confirm,
    /// Send nothing: an operator decides.
    Stop,
}

/// The bank's answer to an inquiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Inquiry {
    /// It has executed the payment.
    Executed,
    /// It has refused it, and never will execute this key.
    Refused,
    /// It does not know the key.
    NeverSeen,
    /// It does not answer, or not yet.
    NoAnswer,
    /// The rail supports no inquiry.
    NotSupported,
}

/// What is known about the earlier attempts of a payment that is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Prior {
    /// None of them paid.
    NotPaid,
    /// One of them may have paid: only an execution settles it.
    Unknown,
}

/// What follows an inquiry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterInquiry {
    /// Send the payment.
    Send(Prior),
    /// Record this, and send nothing.
    Record(Ending),
}

/// The decision table of an unknown outcome.
///
/// `key_remembered` says whether the bank still knows the key when the inquiry and one more dispatch have ended.
pub fn after_inquiry(answer: Inquiry, key_remembered: bool, policy: OnUnknown) -> AfterInquiry {
    match (answer, policy) {
        (Inquiry::Executed, _) => AfterInquiry::Record(Ending::Dispatched),
        (Inquiry::Refused, _) => AfterInquiry::Record(Ending::NotPaid),
        (Inquiry::NeverSeen, _) if key_remembered => AfterInquiry::Send(Prior::NotPaid),
        (Inquiry::NeverSeen, _) => AfterInquiry::Record(Ending::Stopped),
        (Inquiry::NoAnswer | Inquiry::NotSupported, OnUnknown::Resend) if key_remembered => {
            AfterInquiry::Send(Prior::Unknown)
        }
        (Inquiry::NoAnswer, OnUnknown::Inquire) => AfterInquiry::Record(Ending::Unknown),
        (Inquiry::NoAnswer | Inquiry::NotSupported, _) => AfterInquiry::Record(Ending::Stopped),
    }
}

/// The decision table of a payment that the bank has accepted: no row of it sends.
pub fn after_confirmation_inquiry(answer: Inquiry) -> Ending {
    match answer {
        Inquiry::Executed => Ending::Dispatched,
        Inquiry::Refused => Ending::NotPaid,
        // It contradicts the acceptance.
        Inquiry::NeverSeen => Ending::Stopped,
        Inquiry::NoAnswer | Inquiry::NotSupported => Ending::Accepted,
    }
}

/// The bank's answer to a payment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Answer {
    /// It has executed the payment, now or before.
    Executed,
    /// It has the payment, and decides later.
    Accepted,
    /// It refuses the payment.
    Refused,
    /// It did nothing, and asks to come back later.
    Busy,
    /// No answer came, or one that says nothing.
    Lost,
}

/// What a worker reports after an answer.
///
/// A bank may refuse or defer a repeat before it looks at the key. So if an earlier attempt may have paid, only an
/// execution settles the payment.
pub fn after_answer(answer: Answer, prior: Prior) -> Ending {
    match (answer, prior) {
        (Answer::Executed, _) => Ending::Dispatched,
        (Answer::Accepted, _) => Ending::Accepted,
        (Answer::Refused, Prior::NotPaid) => Ending::NotPaid,
        (Answer::Refused, Prior::Unknown) => Ending::Stopped,
        (Answer::Busy, Prior::NotPaid) => Ending::Deferred,
        (Answer::Busy, Prior::Unknown) | (Answer::Lost, _) => Ending::Unknown,
    }
}

/// Whether a half-open circuit breaker may probe with a row: rows that have not failed come first.
pub fn may_probe(row_has_failed: bool, other_has_not_failed: bool) -> bool {
    !row_has_failed || !other_has_not_failed
}
