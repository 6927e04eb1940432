//! Decides what to do with a payment whose last attempt may have paid (unknown outcome).
//!
//! If the payment may have been made by another bank than the rail reaches, nothing is sent, not even an inquiry: an
//! operator has to ask that bank. Otherwise the rail receives an inquiry first, if it supports one. If that does not
//! settle the payment, the rail's policy in
//! the database decides, together with whether the rail still remembers the idempotency key. A payment that the rail has
//! accepted is only inquired about: nothing sends it again. This module never guesses: an outcome that stays unknown is recorded as unknown, until an operator resolves it.

use std::time::Duration;

use symphony_db::payment::worker::{Advice, Claimed};
use symphony_db::payment::{AWAITING_CONFIRMATION, OUTCOME_UNKNOWN, OnUnknown, Outcome, RailAnswer, Reason};

use tokio::time::timeout;

use super::RAIL_TIMEOUT_GRACE;
use crate::lane::{LaneError, RouteSignal};
use crate::rail::{Inquiry, Invalid, Payment, Rail};
use crate::trace::{self, SpanStatus};

/// What is known about the earlier attempts of a payment before it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PriorOutcome {
    /// None of them paid.
    NotPaid,
    /// One of them may have paid. The payment is sent only because the rail drops a repeat of the key, and only an
    /// acceptance settles it.
    Unknown,
}

/// What to do after the inquiry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum NextStep {
    /// Record this outcome and send nothing.
    Record(Outcome, RouteSignal),
    /// Send the payment.
    Send(PriorOutcome),
}

/// Inquires what became of a payment, and decides the next step.
pub(super) async fn inquire(rail: &dyn Rail, payment: &Payment, advice: Result<Advice, LaneError>) -> NextStep {
    let Ok(advice) = advice else {
        // Without the policy no decision is safe. The next attempt reads it again.
        return NextStep::Record(
            still_unknown("the rail's policy could not be read from the database"),
            RouteSignal::Neutral,
        );
    };
    if let Some(other) = &advice.other_endpoint {
        return stop(&other_bank(other, &advice.endpoint, &payment.rail_type), RailAnswer::default());
    }
    let inquiry = if rail.supports_inquiry() {
        // A rail enforces its own timeout. One that does not must not keep the lease renewed without end.
        let limit = rail.timeout() + RAIL_TIMEOUT_GRACE;
        let answer = timeout(limit, rail.inquire(payment));
        let answer = async {
            answer.await.unwrap_or_else(|_| Inquiry::NoAnswer {
                message: format!("no answer to the inquiry within {limit:?}"),
                rail: RailAnswer::default(),
            })
        };
        Some(trace::in_child_span("inquire", answer, span_status).await)
    } else {
        None
    };
    if advice.awaiting_confirmation { decide_accepted(inquiry) } else { decide(&advice, inquiry) }
}

/// What an operator can do about a payment that another bank may have made.
fn other_bank(other: &str, endpoint: &str, rail_type: &str) -> String {
    format!(
        "an attempt with an unknown outcome went to the endpoint {other}, and this relayer reaches {endpoint}: ask the bank at \
         {other} and resolve it; if both are the same bank, declare that, before you redrive it, with: symphony rail \
         same-endpoint {rail_type} {other} {endpoint}"
    )
}

/// Exported as `symphony.state`, so the values stay when a variant is renamed.
fn span_status(inquiry: &Inquiry) -> SpanStatus {
    match inquiry {
        Inquiry::Executed(_) => SpanStatus::ok("EXECUTED"),
        Inquiry::Refused { .. } => SpanStatus::ok("REFUSED"),
        Inquiry::NeverSeen => SpanStatus::ok("NEVER_SEEN"),
        Inquiry::Pending { .. } => SpanStatus::ok("PENDING"),
        Inquiry::NoAnswer { .. } => SpanStatus::failed("NO_ANSWER", None),
    }
}

/// How long the rail must still remember the key: until the inquiry and one more dispatch have ended.
pub(super) fn dispatch_time(rail: &dyn Rail) -> Duration {
    if rail.supports_inquiry() { rail.timeout().saturating_mul(2) } else { rail.timeout() }
}

/// The decision table. `None` if the rail supports no inquiry.
fn decide(advice: &Advice, inquiry: Option<Inquiry>) -> NextStep {
    let Advice { on_unknown, key_remembered, .. } = *advice;
    let (unsettled, rail) = match inquiry {
        Some(Inquiry::Executed(rail)) => {
            return NextStep::Record(Outcome::Dispatched { rail }, RouteSignal::Healthy);
        }
        Some(Inquiry::Refused { reason, rail }) => {
            return NextStep::Record(Outcome::Failed { reason, rail }, RouteSignal::Healthy);
        }
        Some(Inquiry::NeverSeen) if key_remembered => return NextStep::Send(PriorOutcome::NotPaid),
        Some(Inquiry::NeverSeen) => {
            return stop("the rail does not know the key, but may have forgotten it", RailAnswer::default());
        }
        // A rail that answers is healthy, however often it answers "pending".
        Some(Inquiry::Pending { message, rail }) => (Some((message, RouteSignal::Healthy)), rail),
        Some(Inquiry::NoAnswer { message, rail }) => (Some((message, RouteSignal::Failing)), rail),
        None => (None, RailAnswer::default()),
    };
    match (on_unknown, unsettled) {
        (OnUnknown::Resend, _) if key_remembered => NextStep::Send(PriorOutcome::Unknown),
        (OnUnknown::Resend, _) => stop("the rail may have forgotten the key, so a repeat could pay twice", rail),
        (OnUnknown::Stop, _) => stop("the rail's policy is to stop", rail),
        (OnUnknown::Inquire, None) => stop("the rail supports no inquiry", rail),
        (OnUnknown::Inquire, Some((message, signal))) => {
            let reason = Reason { code: OUTCOME_UNKNOWN.to_owned(), message: Some(message) };
            NextStep::Record(Outcome::Retryable { reason, rail, delay: None }, signal)
        }
    }
}

/// The decision table of a payment that the rail has accepted: no row of it sends. `None` if the rail supports no inquiry: then
/// only a callback can settle it.
fn decide_accepted(inquiry: Option<Inquiry>) -> NextStep {
    let (message, rail, signal) = match inquiry {
        Some(Inquiry::Executed(rail)) => {
            return NextStep::Record(Outcome::Dispatched { rail }, RouteSignal::Healthy);
        }
        Some(Inquiry::Refused { reason, rail }) => {
            return NextStep::Record(Outcome::Failed { reason, rail }, RouteSignal::Healthy);
        }
        Some(Inquiry::NeverSeen) => {
            return stop(
                "the rail accepted the payment and says now that it has never seen it",
                RailAnswer::default(),
            );
        }
        Some(Inquiry::Pending { message, rail }) => (message, rail, RouteSignal::Healthy),
        Some(Inquiry::NoAnswer { message, rail }) => (message, rail, RouteSignal::Failing),
        None => ("the rail has sent no callback yet".to_owned(), RailAnswer::default(), RouteSignal::Neutral),
    };
    let reason = Reason { code: AWAITING_CONFIRMATION.to_owned(), message: Some(message) };
    NextStep::Record(Outcome::Retryable { reason, rail, delay: None }, signal)
}

/// Ends the retries: the payment moves to the dead-letter queue, and an operator resolves it.
fn stop(message: &str, rail: RailAnswer) -> NextStep {
    let reason = Reason { code: OUTCOME_UNKNOWN.to_owned(), message: Some(message.to_owned()) };
    NextStep::Record(Outcome::Failed { reason, rail }, RouteSignal::Neutral)
}

/// The outcome stays unknown, and the next attempt begins with an inquiry.
pub(super) fn still_unknown(message: &str) -> Outcome {
    let reason = Reason { code: OUTCOME_UNKNOWN.to_owned(), message: Some(message.to_owned()) };
    Outcome::Retryable { reason, rail: RailAnswer::default(), delay: None }
}

impl PriorOutcome {
    /// What the claim says about earlier attempts, before any inquiry.
    pub(super) fn of(job: &Claimed) -> Self {
        if job.outcome_unknown { Self::Unknown } else { Self::NotPaid }
    }

    /// The outcome of an attempt whose payload failed validation.
    pub(super) fn invalid_payload(self, invalid: Invalid) -> Outcome {
        let code = match self {
            Self::NotPaid => "INVALID_PAYLOAD",
            Self::Unknown => OUTCOME_UNKNOWN,
        };
        let reason = Reason { code: code.to_owned(), message: Some(invalid.message) };
        Outcome::Failed { reason, rail: RailAnswer::default() }
    }

    /// The outcome of an attempt that sent nothing.
    pub(super) fn not_sent(self, message: &str) -> Outcome {
        let code = match self {
            Self::NotPaid => "NOT_SENT",
            Self::Unknown => OUTCOME_UNKNOWN,
        };
        let reason = Reason { code: code.to_owned(), message: Some(message.to_owned()) };
        Outcome::Retryable { reason, rail: RailAnswer::default(), delay: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rail::{Answer, BoxFuture};

    fn advice(on_unknown: OnUnknown, key_remembered: bool) -> Advice {
        Advice {
            on_unknown,
            key_remembered,
            endpoint: "bank#k".into(),
            other_endpoint: None,
            awaiting_confirmation: false,
        }
    }

    fn no_answer() -> Option<Inquiry> {
        Some(Inquiry::NoAnswer { message: "timeout".into(), rail: RailAnswer::default() })
    }

    fn pending() -> Option<Inquiry> {
        Some(Inquiry::Pending { message: "in process".into(), rail: RailAnswer::default() })
    }

    fn label(next: &NextStep) -> &'static str {
        match next {
            NextStep::Send(PriorOutcome::NotPaid) => "send",
            NextStep::Send(PriorOutcome::Unknown) => "send a repeat",
            NextStep::Record(Outcome::Dispatched { .. }, _) => "paid",
            NextStep::Record(Outcome::Failed { reason, .. }, _) if reason.code == OUTCOME_UNKNOWN => "stop",
            NextStep::Record(Outcome::Failed { .. }, _) => "refused",
            NextStep::Record(Outcome::Retryable { reason, .. }, _) if reason.code == OUTCOME_UNKNOWN => {
                "inquire again"
            }
            NextStep::Record(Outcome::Retryable { reason, .. }, _) if reason.code == AWAITING_CONFIRMATION => {
                "await confirmation"
            }
            NextStep::Record(Outcome::Retryable { .. }, _) => "wrong",
        }
    }

    #[test]
    fn what_the_rail_knows_is_recorded_whatever_the_policy() {
        let refused = || Inquiry::Refused {
            reason: Reason { code: "NO_ACCOUNT".into(), message: None },
            rail: RailAnswer::default(),
        };
        for on_unknown in [OnUnknown::Inquire, OnUnknown::Resend, OnUnknown::Stop] {
            for remembered in [true, false] {
                let advice = advice(on_unknown, remembered);
                assert_eq!(label(&decide(&advice, Some(Inquiry::Executed(RailAnswer::default())))), "paid");
                assert_eq!(label(&decide(&advice, Some(refused()))), "refused");
            }
        }
    }

    #[test]
    fn never_seen_counts_only_while_the_rail_remembers() {
        for on_unknown in [OnUnknown::Inquire, OnUnknown::Resend, OnUnknown::Stop] {
            assert_eq!(label(&decide(&advice(on_unknown, true), Some(Inquiry::NeverSeen))), "send");
            assert_eq!(label(&decide(&advice(on_unknown, false), Some(Inquiry::NeverSeen))), "stop");
        }
    }

    #[test]
    fn an_inquiry_that_settles_nothing_is_decided_by_the_policy() {
        for (on_unknown, remembered, not_supported, not_settled) in [
            (OnUnknown::Inquire, true, "stop", "inquire again"),
            (OnUnknown::Inquire, false, "stop", "inquire again"),
            (OnUnknown::Resend, true, "send a repeat", "send a repeat"),
            (OnUnknown::Resend, false, "stop", "stop"),
            (OnUnknown::Stop, true, "stop", "stop"),
            (OnUnknown::Stop, false, "stop", "stop"),
        ] {
            let advice = advice(on_unknown, remembered);
            assert_eq!(label(&decide(&advice, None)), not_supported, "{advice:?}");
            assert_eq!(label(&decide(&advice, no_answer())), not_settled, "{advice:?}");
            assert_eq!(label(&decide(&advice, pending())), not_settled, "{advice:?}");
        }
    }

    #[test]
    fn nothing_sends_a_payment_that_the_rail_has_accepted() {
        let refused = Inquiry::Refused {
            reason: Reason { code: "NO_ACCOUNT".into(), message: None },
            rail: RailAnswer::default(),
        };
        for (inquiry, expected) in [
            (Some(Inquiry::Executed(RailAnswer::default())), "paid"),
            (Some(refused), "refused"),
            (Some(Inquiry::NeverSeen), "stop"),
            (pending(), "await confirmation"),
            (no_answer(), "await confirmation"),
            (None, "await confirmation"),
        ] {
            assert_eq!(label(&decide_accepted(inquiry.clone())), expected, "{inquiry:?}");
        }
    }

    #[test]
    fn a_rail_that_answers_pending_is_not_failing() {
        let signal = |inquiry| match decide(&advice(OnUnknown::Inquire, true), inquiry) {
            NextStep::Record(_, signal) => signal,
            NextStep::Send(_) => panic!("sent"),
        };
        assert_eq!((signal(pending()), signal(no_answer())), (RouteSignal::Healthy, RouteSignal::Failing));
    }

    struct SlowRail {
        supports_inquiry: bool,
    }

    impl Rail for SlowRail {
        fn validate(&self, _: &Payment) -> Result<(), Invalid> {
            Ok(())
        }
        fn dispatch<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Answer> {
            Box::pin(std::future::pending())
        }
        fn timeout(&self) -> Duration {
            Duration::from_secs(30)
        }
        fn supports_inquiry(&self) -> bool {
            self.supports_inquiry
        }
        fn inquire<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Inquiry> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn the_key_must_be_remembered_through_the_inquiry_and_the_dispatch() {
        assert_eq!(dispatch_time(&SlowRail { supports_inquiry: true }), Duration::from_secs(60));
        assert_eq!(dispatch_time(&SlowRail { supports_inquiry: false }), Duration::from_secs(30));
    }

    #[test]
    fn an_attempt_that_sent_nothing_says_nothing_about_an_earlier_attempt() {
        let invalid = || Invalid { message: "amount must be above zero".into() };
        let code = |outcome: Outcome| outcome.reason().unwrap().code.clone();
        assert_eq!(code(PriorOutcome::NotPaid.invalid_payload(invalid())), "INVALID_PAYLOAD");
        assert_eq!(code(PriorOutcome::Unknown.invalid_payload(invalid())), OUTCOME_UNKNOWN);
        assert_eq!(code(PriorOutcome::NotPaid.not_sent("late")), "NOT_SENT");
        assert_eq!(code(PriorOutcome::Unknown.not_sent("late")), OUTCOME_UNKNOWN);
    }
}
