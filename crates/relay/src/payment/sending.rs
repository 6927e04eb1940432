//! What a rail's answer to a payment means for the ledger.

use symphony_outbox::payment::{OUTCOME_UNKNOWN, Outcome, Reason};

use super::unknown::Standing;
use crate::lane::RouteSignal;
use crate::rail::Answer;

/// The outcome to record, and what the answer says about the rail.
///
/// After an attempt in doubt only "accepted" settles anything: the rail may refuse or put off a repeat before it has
/// looked at the key, and then the earlier attempt may still have paid.
pub(super) fn outcome(answer: Answer, standing: Standing) -> (Outcome, RouteSignal) {
    let in_doubt = standing == Standing::InDoubt;
    let doubt = |said: Reason| Reason {
        code: OUTCOME_UNKNOWN.to_owned(),
        message: Some(match said.message {
            Some(message) => format!("a repeat was answered with {}: {message}", said.code),
            None => format!("a repeat was answered with {}", said.code),
        }),
    };
    match answer {
        Answer::Accepted(rail) => (Outcome::Dispatched { rail }, RouteSignal::Healthy),
        Answer::Refused { reason, rail } => {
            let reason = if in_doubt { doubt(reason) } else { reason };
            (Outcome::Failed { reason, rail }, RouteSignal::Healthy)
        }
        Answer::Later { reason, rail, after } => {
            let reason = if in_doubt { doubt(reason) } else { reason };
            (Outcome::Retryable { reason, rail, delay: after }, RouteSignal::Failing)
        }
        Answer::Unknown { message, rail, row_only } => {
            let reason = Reason { code: OUTCOME_UNKNOWN.to_owned(), message: Some(message) };
            // A row that fails by itself must not open the circuit breaker of its rail.
            let signal = if row_only { RouteSignal::Neutral } else { RouteSignal::Failing };
            (Outcome::Retryable { reason, rail, delay: None }, signal)
        }
    }
}

#[cfg(test)]
mod tests {
    use symphony_outbox::payment::{AttemptState, RailAnswer};

    use super::*;

    fn reason(code: &str) -> Reason {
        Reason { code: code.into(), message: None }
    }

    fn recorded(answer: Answer, standing: Standing) -> (AttemptState, Option<String>) {
        let (outcome, _) = outcome(answer, standing);
        (outcome.state(), outcome.reason().map(|reason| reason.code.clone()))
    }

    #[test]
    fn an_answer_is_recorded_as_it_was_given() {
        let rail = RailAnswer::default;
        let unknown = Some(OUTCOME_UNKNOWN.to_owned());
        for (answer, clear, in_doubt) in [
            (Answer::Accepted(rail()), (AttemptState::Dispatched, None), (AttemptState::Dispatched, None)),
            (
                Answer::Refused { reason: reason("NO_ACCOUNT"), rail: rail() },
                (AttemptState::Failed, Some("NO_ACCOUNT".to_owned())),
                (AttemptState::Failed, unknown.clone()),
            ),
            (
                Answer::Later { reason: reason("BUSY"), rail: rail(), after: None },
                (AttemptState::Retryable, Some("BUSY".to_owned())),
                (AttemptState::Retryable, unknown.clone()),
            ),
            (
                Answer::Unknown { message: "cut".into(), rail: rail(), row_only: false },
                (AttemptState::Retryable, unknown.clone()),
                (AttemptState::Retryable, unknown.clone()),
            ),
        ] {
            assert_eq!(recorded(answer.clone(), Standing::Clear), clear);
            assert_eq!(recorded(answer, Standing::InDoubt), in_doubt);
        }
    }

    #[test]
    fn a_row_that_the_rail_rejects_for_what_it_is_does_not_count_against_the_rail() {
        let signal = |row_only| {
            outcome(
                Answer::Unknown { message: "HTTP 413".into(), rail: RailAnswer::default(), row_only },
                Standing::Clear,
            )
            .1
        };
        assert_eq!((signal(true), signal(false)), (RouteSignal::Neutral, RouteSignal::Failing));
    }
}
