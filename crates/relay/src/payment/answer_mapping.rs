//! Maps a rail's [`Answer`] to the [`Outcome`] that the ledger records, and to a signal for the circuit breaker.

use symphony_db::payment::{AWAITING_CONFIRMATION, OUTCOME_UNKNOWN, Outcome, Reason};

use super::unknown_outcome::PriorOutcome;
use crate::lane::RouteSignal;
use crate::rail::Answer;

/// The outcome to record, and what the answer says about the health of the rail.
///
/// If an earlier attempt may have paid, only an execution settles the payment. A rail may refuse or defer a
/// repeat before it looks at the idempotency key, so any other answer leaves the outcome unknown. An acceptance leaves it open
/// in any case, until the rail confirms what became of the key.
pub(super) fn outcome(answer: Answer, prior: PriorOutcome) -> (Outcome, RouteSignal) {
    let recorded_reason = |reason: Reason| match prior {
        PriorOutcome::NotPaid => reason,
        PriorOutcome::Unknown => Reason {
            code: OUTCOME_UNKNOWN.to_owned(),
            message: Some(match reason.message {
                Some(message) => format!("the rail answered a repeat with {}: {message}", reason.code),
                None => format!("the rail answered a repeat with {}", reason.code),
            }),
        },
    };
    match answer {
        Answer::Executed(rail) | Answer::ExecutedBefore(rail) => {
            (Outcome::Dispatched { rail }, RouteSignal::Healthy)
        }
        Answer::AwaitingConfirmation(rail) => {
            let message = Some("the rail has accepted the payment, and its outcome comes later".to_owned());
            let reason = Reason { code: AWAITING_CONFIRMATION.to_owned(), message };
            (Outcome::Retryable { reason, rail, delay: None }, RouteSignal::Healthy)
        }
        Answer::Refused { reason, rail } => {
            (Outcome::Failed { reason: recorded_reason(reason), rail }, RouteSignal::Healthy)
        }
        Answer::Retryable { reason, rail, retry_after } => {
            let reason = recorded_reason(reason);
            (Outcome::Retryable { reason, rail, delay: retry_after }, RouteSignal::Failing)
        }
        Answer::Unknown { message, rail, row_only } => {
            let reason = Reason { code: OUTCOME_UNKNOWN.to_owned(), message: Some(message) };
            // One row that the rail cannot process must not open the circuit breaker for the others.
            let signal = if row_only { RouteSignal::Neutral } else { RouteSignal::Failing };
            (Outcome::Retryable { reason, rail, delay: None }, signal)
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_db::payment::{AttemptState, RailAnswer};

    use super::*;

    fn reason(code: &str) -> Reason {
        Reason { code: code.into(), message: None }
    }

    fn recorded(answer: Answer, prior: PriorOutcome) -> (AttemptState, Option<String>) {
        let (outcome, _) = outcome(answer, prior);
        (outcome.state(), outcome.reason().map(|reason| reason.code.clone()))
    }

    #[test]
    fn only_an_execution_settles_a_payment_that_an_earlier_attempt_may_have_paid() {
        let rail = RailAnswer::default;
        let unknown = Some(OUTCOME_UNKNOWN.to_owned());
        let awaiting = (AttemptState::Retryable, Some(AWAITING_CONFIRMATION.to_owned()));
        for (answer, after_not_paid, after_unknown) in [
            (Answer::Executed(rail()), (AttemptState::Dispatched, None), (AttemptState::Dispatched, None)),
            (Answer::ExecutedBefore(rail()), (AttemptState::Dispatched, None), (AttemptState::Dispatched, None)),
            (Answer::AwaitingConfirmation(rail()), awaiting.clone(), awaiting),
            (
                Answer::Refused { reason: reason("NO_ACCOUNT"), rail: rail() },
                (AttemptState::Failed, Some("NO_ACCOUNT".to_owned())),
                (AttemptState::Failed, unknown.clone()),
            ),
            (
                Answer::Retryable { reason: reason("BUSY"), rail: rail(), retry_after: None },
                (AttemptState::Retryable, Some("BUSY".to_owned())),
                (AttemptState::Retryable, unknown.clone()),
            ),
            (
                Answer::Unknown { message: "connection lost".into(), rail: rail(), row_only: false },
                (AttemptState::Retryable, unknown.clone()),
                (AttemptState::Retryable, unknown.clone()),
            ),
        ] {
            assert_eq!(recorded(answer.clone(), PriorOutcome::NotPaid), after_not_paid);
            assert_eq!(recorded(answer, PriorOutcome::Unknown), after_unknown);
        }
    }

    #[test]
    fn a_row_that_the_rail_cannot_process_does_not_count_against_the_rail() {
        let signal = |row_only| {
            outcome(
                Answer::Unknown { message: "HTTP 413".into(), rail: RailAnswer::default(), row_only },
                PriorOutcome::NotPaid,
            )
            .1
        };
        assert_eq!((signal(true), signal(false)), (RouteSignal::Neutral, RouteSignal::Failing));
    }
}
