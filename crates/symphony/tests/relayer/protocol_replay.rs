//! A real run is replayed by the rules of the protocol, and a deviation that is planted in its records is found.

use serde_json::json;
use symphony_testkit::protocol::replay::replay;
use symphony_testkit::protocol::rules::Ending;
use symphony_testkit::protocol::trace::{self, Handled, Request, Trace};

use crate::harness::{Harness, ORDERED};
use crate::producers::instruction;

/// The records of a run with two payments of one participant on an ordered rail. The answer to the first was lost.
async fn run() -> (Trace, Vec<Request>) {
    let harness = Harness::start().await;
    harness.set_rail(ORDERED, &json!({"ordered": true})).await;
    let [first, second] = [0, 5].map(|number| instruction("replay", number, ORDERED));
    assert_eq!(first.participant_id, second.participant_id);
    harness.bank.set_faults(&json!({"for_key": {(first.idempotency_key.clone()): ["cut_after"]}})).await;
    let mut producer = harness.producer();
    for instruction in [&first, &second] {
        producer.enqueue(instruction).await;
    }
    let relayer = harness.start_relayer(&harness.settings_for(&[ORDERED])).await;
    harness.reconcile().await;
    relayer.stop().await;
    (trace::read(&mut harness.superuser().await).await.unwrap(), harness.bank.trace().await)
}

#[tokio::test]
async fn a_deviation_that_is_planted_in_the_records_of_a_run_is_found() {
    type Plant = fn(&mut Trace, &mut Vec<Request>);
    let (trace, requests) = run().await;
    let replayed = replay(&trace, &requests).unwrap();
    assert_eq!((replayed.attempts, replayed.requests, replayed.unknown_outcomes), (3, 3, 1));

    let deviations: [(Plant, &str); 4] = [
        (
            // A swapped attempt.
            |trace, _| {
                let attempts = &mut trace.outboxes[0].attempts;
                let (first, second) = (attempts[0].clone(), attempts[1].clone());
                (attempts[0].claimed_at, attempts[0].completed_at) = (second.claimed_at, second.completed_at);
                (attempts[1].claimed_at, attempts[1].completed_at) = (first.claimed_at, first.completed_at);
            },
            "is claimed while attempt 1 is under way",
        ),
        (
            // The bank executes again.
            |_, requests| {
                let executed = requests.iter().find(|request| request.outcome == Handled::Executed).cloned();
                requests.extend(executed);
            },
            "the bank executes it a second time",
        ),
        (
            // A completion after the lease has expired.
            |trace, _| {
                let attempts = &mut trace.outboxes[0].attempts;
                attempts[0].ending = Ending::LeaseExpired;
                attempts[1].claimed_at = attempts[0].claimed_at;
            },
            "is under the lease that attempt 1 has ended as LeaseExpired",
        ),
        (
            // An execution out of order.
            |trace, _| {
                let (first, second) = (trace.outboxes[0].sequence_id, trace.outboxes[1].sequence_id);
                (trace.outboxes[0].sequence_id, trace.outboxes[1].sequence_id) = (second, first);
            },
            "on an ordered rail",
        ),
    ];
    for (plant, expected) in deviations {
        let (mut trace, mut requests) = (trace.clone(), requests.clone());
        plant(&mut trace, &mut requests);
        let found = replay(&trace, &requests).unwrap_err().to_string();
        assert!(found.contains(expected), "{found}");
    }
}
