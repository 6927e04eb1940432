//! Checks of a plain payment and of the times of all answers.

use super::report::{Check, Outcome, Report};
use super::suite::Suite;

const EXECUTED: Check = Check {
    group: "payments",
    name: "a payment is executed",
    tried: "POST of a payment under a new key",
    expected: "HTTP 200 or 201 with a JSON object that has a reference, or HTTP 202 and soon an inquiry that has one",
    advice: "answer 201 {\"status\":\"EXECUTED\",\"reference\":\"…\"}. A payload of your own: --payload-file. \
             More time after HTTP 202: --confirm-within. \
             Credentials and another mapping of codes: --config and --rail",
};

const IN_TIME: Check = Check {
    group: "answers",
    name: "every request is answered in time",
    tried: "the time until each complete response of this run",
    expected: "a complete response within the rail's timeout",
    advice: "answer within the timeout, or raise it (timeout). Each answer that is late is an unknown outcome",
};

/// Whether the adapter executes a payment. If not, no other check means anything.
pub(super) async fn run(suite: &Suite, report: &mut Report) -> bool {
    let reply = suite.pay(&suite.payment("first")).await;
    let is_executed = reply.reference().is_some();
    let described = reply.describe();
    report.add(&EXECUTED, if is_executed { Outcome::Passed(described) } else { Outcome::Failed(described) });
    is_executed
}

/// Whether every request of the run had a complete response in time.
pub(super) fn answer_times(suite: &Suite, report: &mut Report) {
    let (slowest, unanswered) = suite.answer_times();
    let limit = suite.rail().client.timeout();
    let outcome = match unanswered.first() {
        None => Outcome::Passed(format!("the slowest took {slowest:.0?}; the limit is {limit:?}")),
        Some(first) => Outcome::Failed(format!("{} without an answer; the first: {first}", unanswered.len())),
    };
    report.add(&IN_TIME, outcome);
}
