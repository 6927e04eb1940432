//! A run that follows the protocol is replayed to its end, and each planted deviation is found.

use jiff::{SignedDuration, Timestamp};
use symphony_db::payment::OnUnknown;

use super::replay::{Deviation, Replayed, replay};
use super::rules::{Ending, FirstStep, History, PastAttempt};
use super::trace::{Attempt, Confirmation, Handled, Kind, Outbox, Policy, Request, Trace};

/// So many seconds after the run began.
fn second(seconds: i64) -> Timestamp {
    Timestamp::UNIX_EPOCH + SignedDuration::from_secs(1_000_000_000 + seconds)
}

fn attempt(number: i32, ending: Ending, from: i64, to: i64) -> Attempt {
    let worker = format!("relayer-{number}");
    Attempt {
        number,
        ending,
        claimed_at: second(from),
        completed_at: second(to),
        worker,
        epoch: 1,
        confirmation: Confirmation::None,
    }
}

/// The payment with this number of one participant on an ordered rail.
fn outbox(number: i64, attempts: Vec<Attempt>) -> Outbox {
    Outbox {
        outbox_id: format!("00000000-0000-7000-8000-{number:012}").parse().unwrap(),
        participant_id: "acme".into(),
        sequence_id: number,
        key: format!("key-{number}"),
        rail_type: "wire".into(),
        pending: false,
        attempts,
    }
}

fn request(number: i64, kind: Kind, outcome: Handled, at: i64) -> Request {
    Request { key: format!("key-{number}"), kind, outcome, at: second(at) }
}

/// Payment 1 is lost on its way, its inquiry is answered "never seen", and its next attempt times out after it was
/// executed. Payment 2 follows at once. Payment 3 is claimed by a relayer that dies.
fn run() -> (Trace, Vec<Request>) {
    let policy = Policy { ordered: true, max_attempts: 5, on_unknown: OnUnknown::Inquire, forgets: false };
    let outboxes = vec![
        outbox(
            1,
            vec![
                attempt(1, Ending::Unknown, 0, 10),
                attempt(2, Ending::Unknown, 15, 25),
                attempt(3, Ending::Dispatched, 35, 36),
            ],
        ),
        outbox(2, vec![attempt(1, Ending::Dispatched, 40, 41)]),
        outbox(3, vec![attempt(1, Ending::LeaseExpired, 50, 81), attempt(2, Ending::Dispatched, 80, 83)]),
    ];
    let requests = vec![
        request(1, Kind::Payment, Handled::Nothing, 1),
        request(1, Kind::Inquiry, Handled::UnknownKey, 16),
        request(1, Kind::Payment, Handled::Executed, 17),
        request(1, Kind::Inquiry, Handled::Found, 35),
        request(2, Kind::Payment, Handled::Executed, 40),
        request(3, Kind::Payment, Handled::Executed, 51),
        request(3, Kind::Inquiry, Handled::Found, 82),
    ];
    (Trace { outboxes, policies: [("wire".to_owned(), vec![policy])].into() }, requests)
}

/// The deviation that is found once this was planted in the run.
fn planted(plant: impl FnOnce(&mut Trace, &mut Vec<Request>)) -> String {
    let (mut trace, mut requests) = run();
    plant(&mut trace, &mut requests);
    let Deviation { key, what, .. } = replay(&trace, &requests).expect_err("the deviation is not found");
    format!("{key}: {what}")
}

#[test]
fn a_run_that_follows_the_protocol_is_replayed_to_its_end() {
    let (trace, requests) = run();
    let replayed = replay(&trace, &requests).unwrap();
    assert_eq!(replayed, Replayed { attempts: 6, requests: 7, unknown_outcomes: 3 });
}

#[test]
fn a_late_request_of_a_dead_relayer_is_allowed() {
    let (trace, mut requests) = run();
    requests.truncate(5);
    requests.extend([
        request(3, Kind::Inquiry, Handled::UnknownKey, 81),
        request(3, Kind::Payment, Handled::Executed, 82),
        request(3, Kind::Payment, Handled::Replayed, 90),
    ]);
    assert!(replay(&trace, &requests).is_ok());
    // One lease sends once.
    requests.push(request(3, Kind::Payment, Handled::Replayed, 91));
    assert!(replay(&trace, &requests).is_err());
}

#[test]
fn a_row_of_an_earlier_epoch_may_be_inquired_about_first() {
    let (mut trace, mut requests) = run();
    requests.insert(4, request(2, Kind::Inquiry, Handled::UnknownKey, 40));
    assert!(replay(&trace, &requests).is_err());
    trace.outboxes[1].attempts[0].epoch = 2;
    assert!(replay(&trace, &requests).is_ok());
}

#[test]
fn of_an_earlier_epoch_every_attempt_at_another_endpoint_stops_a_payment() {
    let first_step = |ending, epoch, endpoint| {
        let attempts = [PastAttempt { ending, epoch: 1, endpoint: "old" }];
        History { enqueued_in: 1, epoch, attempts: &attempts }.first_step(&endpoint)
    };
    assert_eq!(first_step(Ending::Deferred, 2, "new"), FirstStep::Stop);
    assert_eq!(first_step(Ending::Deferred, 2, "old"), FirstStep::Inquire);
    assert_eq!(first_step(Ending::Deferred, 1, "new"), FirstStep::Send);
    assert_eq!(first_step(Ending::Unknown, 1, "new"), FirstStep::Stop);
}

#[test]
fn swapped_attempts_are_found() {
    let found = planted(|trace, _| trace.outboxes[0].attempts.swap(0, 1));
    assert!(found.contains("has this number although it is number 1"), "{found}");
    let found = planted(|trace, _| {
        let attempts = &mut trace.outboxes[0].attempts;
        (attempts[1].ending, attempts[2].ending) = (Ending::Dispatched, Ending::Unknown);
    });
    assert!(found.contains("follows attempt 2, which ended it as Dispatched"), "{found}");
    let found = planted(|trace, _| {
        let attempts = &mut trace.outboxes[0].attempts;
        (attempts[0].claimed_at, attempts[0].completed_at) = (second(15), second(25));
        (attempts[1].claimed_at, attempts[1].completed_at) = (second(0), second(10));
    });
    assert!(found.contains("is claimed while attempt 1 is under way"), "{found}");
}

#[test]
fn a_missing_attempt_is_found() {
    let found = planted(|trace, _| drop(trace.outboxes[0].attempts.remove(1)));
    assert!(found.contains("attempt 3, of relayer-3, has this number although it is number 2"), "{found}");
}

#[test]
fn a_second_execution_at_the_bank_is_found() {
    let found = planted(|_, requests| requests.push(request(2, Kind::Payment, Handled::Executed, 99)));
    assert_eq!(found, "key-2: the bank executes it a second time");
}

#[test]
fn a_payment_that_is_sent_again_after_its_end_is_found() {
    let found = planted(|_, requests| requests.push(request(2, Kind::Payment, Handled::Replayed, 99)));
    assert!(found.contains("that no attempt may have sent"), "{found}");
}

#[test]
fn a_completion_after_the_lease_has_expired_is_found() {
    let found = planted(|trace, _| {
        let lost = trace.outboxes[2].attempts[0].clone();
        trace.outboxes[2].attempts[1] =
            Attempt { number: 2, ending: Ending::Dispatched, completed_at: second(83), ..lost };
    });
    assert!(found.contains("is under the lease that attempt 1 has ended as LeaseExpired"), "{found}");
}

#[test]
fn an_execution_out_of_order_is_found() {
    let found = planted(|trace, requests| {
        (trace.outboxes[1].sequence_id, trace.outboxes[2].sequence_id) = (3, 2);
        requests.sort_by_key(|request| request.at);
    });
    assert!(found.contains("executes number 3 of its participant before number 2"), "{found}");
}

#[test]
fn a_resend_without_an_inquiry_is_found() {
    let found = planted(|_, requests| requests.retain(|request| request.outcome != Handled::UnknownKey));
    assert!(found.contains("a request (Payment, Executed) that no attempt may have sent"), "{found}");
}

#[test]
fn an_ending_that_contradicts_the_bank_is_found() {
    let found = planted(|trace, _| trace.outboxes[1].attempts[0].ending = Ending::NotPaid);
    assert!(found.contains("ends as NotPaid, which does not follow from what the bank did"), "{found}");
    let found = planted(|_, requests| requests.retain(|request| request.key != "key-2"));
    assert!(found.contains("ends as Dispatched, which does not follow"), "{found}");
}

#[test]
fn a_retry_beyond_the_last_attempt_is_found() {
    let found = planted(|trace, _| {
        trace.policies.insert(
            "wire".into(),
            vec![Policy { ordered: true, max_attempts: 2, on_unknown: OnUnknown::Inquire, forgets: false }],
        );
    });
    assert!(found.contains("ends as Unknown, at the last attempt of its rail"), "{found}");
}

#[test]
fn an_outbox_that_has_neither_ended_nor_waits_is_found() {
    let found = planted(|trace, _| drop(trace.outboxes[2].attempts.pop()));
    assert!(found.contains("attempt 1 does not end it, and it is not pending"), "{found}");
}

#[test]
fn the_first_deviation_is_reported() {
    let found = planted(|trace, requests| {
        requests.push(request(2, Kind::Payment, Handled::Executed, 99));
        trace.outboxes[0].attempts[0].completed_at = second(-1);
    });
    assert!(found.starts_with("key-1: attempt 1, of relayer-1, ends before it was claimed"), "{found}");
}
