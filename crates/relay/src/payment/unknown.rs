//! Handling of unknown outcomes: what to do with a payment whose last attempt may have paid.
//!
//! The rail is asked first, if it can be. What it does not say is decided by its policy, which the database holds, and by
//! whether it still remembers the idempotency key. Nothing is guessed: what stays unknown stays unknown in the ledger, until
//! an operator resolves it.

use std::time::Duration;

use symphony_outbox::payment::worker::{Advice, Claimed};
use symphony_outbox::payment::{OUTCOME_UNKNOWN, OnUnknown, Outcome, RailAnswer, Reason};

use crate::lane::{LaneError, RouteSignal};
use crate::rail::{Inquiry, Invalid, Payment, Rail};
use crate::trace::{self, End};

/// What is known of earlier attempts when a payment is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// None of them paid.
    Clear,
    /// One of them may have paid. The rail drops a repeat, so it may be sent; but only its word that it was accepted
    /// settles anything.
    InDoubt,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Record this; nothing is sent.
    Record(Outcome, RouteSignal),
    /// Send it.
    Send(Standing),
}

/// Asks the rail what became of a payment, and decides.
pub(super) async fn ask(rail: &dyn Rail, payment: &Payment, advice: Result<Advice, LaneError>) -> Next {
    let Ok(advice) = advice else {
        // Without the policy nothing may be decided. The next attempt asks again.
        return Next::Record(
            still_unknown("the database could not say what the policy allows"),
            RouteSignal::Neutral,
        );
    };
    let inquiry =
        if rail.can_be_asked() { Some(trace::part("inquire", rail.inquire(payment), said).await) } else { None };
    decide(advice, inquiry)
}

/// What a span tells of a question: what the rail said, in a word.
fn said(inquiry: &Inquiry) -> End {
    match inquiry {
        Inquiry::Executed(_) => End::well("EXECUTED"),
        Inquiry::Refused { .. } => End::well("REFUSED"),
        Inquiry::NeverSeen => End::well("NEVER_SEEN"),
        Inquiry::Undecided { .. } => End::well("UNDECIDED"),
        Inquiry::Unsaid { .. } => End::badly("UNSAID", None),
    }
}

/// For how long advice must hold: until one more sending has ended, and the question that goes before it.
pub(super) fn sending_time(rail: &dyn Rail) -> Duration {
    if rail.can_be_asked() { rail.timeout().saturating_mul(2) } else { rail.timeout() }
}

/// The table. `None`: the rail cannot be asked.
fn decide(advice: Advice, inquiry: Option<Inquiry>) -> Next {
    let Advice { on_unknown, key_remembered } = advice;
    let (unsaid, rail) = match inquiry {
        Some(Inquiry::Executed(rail)) => return Next::Record(Outcome::Dispatched { rail }, RouteSignal::Healthy),
        Some(Inquiry::Refused { reason, rail }) => {
            return Next::Record(Outcome::Failed { reason, rail }, RouteSignal::Healthy);
        }
        Some(Inquiry::NeverSeen) if key_remembered => return Next::Send(Standing::Clear),
        Some(Inquiry::NeverSeen) => {
            return stop("the rail does not know the key, but may have forgotten it", RailAnswer::default());
        }
        // A rail that answers is not failing, however often it says "not yet".
        Some(Inquiry::Undecided { message, rail }) => (Some((message, RouteSignal::Healthy)), rail),
        Some(Inquiry::Unsaid { message, rail }) => (Some((message, RouteSignal::Failing)), rail),
        None => (None, RailAnswer::default()),
    };
    match (on_unknown, unsaid) {
        (OnUnknown::Resend, _) if key_remembered => Next::Send(Standing::InDoubt),
        (OnUnknown::Resend, _) => stop("the rail may have forgotten the key, so a repeat could pay twice", rail),
        (OnUnknown::Stop, _) => stop("the rail's policy is to stop", rail),
        (OnUnknown::Inquire, None) => stop("the rail cannot be asked", rail),
        (OnUnknown::Inquire, Some((message, signal))) => {
            let reason = Reason { code: OUTCOME_UNKNOWN.to_owned(), message: Some(message) };
            Next::Record(Outcome::Retryable { reason, rail, delay: None }, signal)
        }
    }
}

/// Stops retrying: an operator has to resolve the payment.
fn stop(message: &str, rail: RailAnswer) -> Next {
    let reason = Reason { code: OUTCOME_UNKNOWN.to_owned(), message: Some(message.to_owned()) };
    Next::Record(Outcome::Failed { reason, rail }, RouteSignal::Neutral)
}

/// The outcome stays unknown, and the next attempt begins with an inquiry.
pub(super) fn still_unknown(message: &str) -> Outcome {
    let reason = Reason { code: OUTCOME_UNKNOWN.to_owned(), message: Some(message.to_owned()) };
    Outcome::Retryable { reason, rail: RailAnswer::default(), delay: None }
}

impl Standing {
    /// What is known before anybody was asked.
    pub(super) fn of(job: &Claimed) -> Self {
        if job.outcome_unknown { Self::InDoubt } else { Self::Clear }
    }

    /// What to record where the payload must not leave.
    pub(super) fn of_invalid(self, invalid: Invalid) -> Outcome {
        let code = match self {
            Self::Clear => "INVALID_PAYLOAD",
            Self::InDoubt => OUTCOME_UNKNOWN,
        };
        let reason = Reason { code: code.to_owned(), message: Some(invalid.message) };
        Outcome::Failed { reason, rail: RailAnswer::default() }
    }

    /// What to record where nothing was sent, this time.
    pub(super) fn of_unsent(self, message: &str) -> Outcome {
        let code = match self {
            Self::Clear => "NOT_SENT",
            Self::InDoubt => OUTCOME_UNKNOWN,
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
        Advice { on_unknown, key_remembered }
    }

    fn unsaid() -> Option<Inquiry> {
        Some(Inquiry::Unsaid { message: "no answer".into(), rail: RailAnswer::default() })
    }

    fn undecided() -> Option<Inquiry> {
        Some(Inquiry::Undecided { message: "still under way".into(), rail: RailAnswer::default() })
    }

    /// A word for what was decided.
    fn word(next: &Next) -> &'static str {
        match next {
            Next::Send(Standing::Clear) => "send",
            Next::Send(Standing::InDoubt) => "send in doubt",
            Next::Record(Outcome::Dispatched { .. }, _) => "paid",
            Next::Record(Outcome::Failed { reason, .. }, _) if reason.code == OUTCOME_UNKNOWN => "stop",
            Next::Record(Outcome::Failed { .. }, _) => "refused",
            Next::Record(Outcome::Retryable { reason, .. }, _) if reason.code == OUTCOME_UNKNOWN => "ask again",
            Next::Record(Outcome::Retryable { .. }, _) => "wrong",
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
                assert_eq!(word(&decide(advice, Some(Inquiry::Executed(RailAnswer::default())))), "paid");
                assert_eq!(word(&decide(advice, Some(refused()))), "refused");
            }
        }
    }

    #[test]
    fn never_seen_counts_only_while_the_rail_remembers() {
        for on_unknown in [OnUnknown::Inquire, OnUnknown::Resend, OnUnknown::Stop] {
            assert_eq!(word(&decide(advice(on_unknown, true), Some(Inquiry::NeverSeen))), "send");
            assert_eq!(word(&decide(advice(on_unknown, false), Some(Inquiry::NeverSeen))), "stop");
        }
    }

    #[test]
    fn what_the_rail_does_not_say_is_decided_by_its_policy() {
        for (on_unknown, remembered, not_asked, not_said) in [
            (OnUnknown::Inquire, true, "stop", "ask again"),
            (OnUnknown::Inquire, false, "stop", "ask again"),
            (OnUnknown::Resend, true, "send in doubt", "send in doubt"),
            (OnUnknown::Resend, false, "stop", "stop"),
            (OnUnknown::Stop, true, "stop", "stop"),
            (OnUnknown::Stop, false, "stop", "stop"),
        ] {
            let advice = advice(on_unknown, remembered);
            assert_eq!(word(&decide(advice, None)), not_asked, "{advice:?}");
            assert_eq!(word(&decide(advice, unsaid())), not_said, "{advice:?}");
            assert_eq!(word(&decide(advice, undecided())), not_said, "{advice:?}");
        }
    }

    #[test]
    fn a_rail_that_says_not_yet_is_not_failing() {
        let signal = |inquiry| match decide(advice(OnUnknown::Inquire, true), inquiry) {
            Next::Record(_, signal) => signal,
            Next::Send(_) => panic!("sent"),
        };
        assert_eq!((signal(undecided()), signal(unsaid())), (RouteSignal::Healthy, RouteSignal::Failing));
    }

    struct Slow {
        can_be_asked: bool,
    }

    impl Rail for Slow {
        fn validate(&self, _: &Payment) -> Result<(), Invalid> {
            Ok(())
        }
        fn dispatch<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Answer> {
            Box::pin(std::future::pending())
        }
        fn timeout(&self) -> Duration {
            Duration::from_secs(30)
        }
        fn can_be_asked(&self) -> bool {
            self.can_be_asked
        }
        fn inquire<'a>(&'a self, _: &'a Payment) -> BoxFuture<'a, Inquiry> {
            Box::pin(std::future::pending())
        }
    }

    #[test]
    fn the_key_must_be_remembered_through_the_question_and_the_sending() {
        assert_eq!(sending_time(&Slow { can_be_asked: true }), Duration::from_secs(60));
        assert_eq!(sending_time(&Slow { can_be_asked: false }), Duration::from_secs(30));
    }

    #[test]
    fn what_never_left_says_nothing_about_an_earlier_attempt() {
        let invalid = || Invalid { message: "amount must be above zero".into() };
        let code = |outcome: Outcome| outcome.reason().unwrap().code.clone();
        assert_eq!(code(Standing::Clear.of_invalid(invalid())), "INVALID_PAYLOAD");
        assert_eq!(code(Standing::InDoubt.of_invalid(invalid())), OUTCOME_UNKNOWN);
        assert_eq!(code(Standing::Clear.of_unsent("late")), "NOT_SENT");
        assert_eq!(code(Standing::InDoubt.of_unsent("late")), OUTCOME_UNKNOWN);
    }
}
